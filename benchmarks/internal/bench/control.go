package bench

import (
	"context"
	"crypto/sha256"
	"time"
)

// Control is work for the processor alone: each goroutine digests 740 bytes of its
// own again and again, which stay in its first cache. It returns µs for each digest,
// over all goroutines. How it gets faster with more of them is the most that can be
// asked of anything else on the machine at that moment.
func Control(ctx context.Context, goroutines int, d time.Duration) (float64, error) {
	const size, digests = 740, 512
	buffers := make([][]byte, goroutines)
	for g := range buffers {
		buffers[g] = make([]byte, size+sha256.Size) // apart in memory
	}
	pass, err := Loop(ctx, goroutines, d, func(g, _ int) error {
		b := buffers[g][:size]
		for range digests {
			sum := sha256.Sum256(b)
			copy(b, sum[:]) // the next one depends on it
		}
		return nil
	})
	return pass.PerText(digests), err
}

// Spin is such work by one goroutine for d, or until ctx ends, whose error it returns
// then: a neighbour that needs the processor alone.
func Spin(ctx context.Context, d time.Duration) error {
	var b [740]byte
	for begun := time.Now(); time.Since(begun) < d; {
		for range 512 {
			sum := sha256.Sum256(b[:])
			copy(b[:], sum[:])
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
