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
	work := make([]func(int), goroutines)
	for g := range work {
		work[g] = Digester()
	}
	pass, err := Loop(ctx, goroutines, d, func(g, _ int) error {
		work[g](digests)
		return nil
	})
	return pass.PerText(digests), err
}

const digests = 512 // of one call

// Digester returns the control's work for one goroutine: n digests, each of what the
// one before has left.
func Digester() func(n int) {
	const size = 740
	b := make([]byte, size+sha256.Size)[:size] // apart in memory from others
	return func(n int) {
		for range n {
			sum := sha256.Sum256(b)
			copy(b, sum[:])
		}
	}
}

// Spin is such work by one goroutine for d, or until ctx ends, whose error it returns
// then: a neighbour that needs the processor alone.
func Spin(ctx context.Context, d time.Duration) error {
	work := Digester()
	for begun := time.Now(); time.Since(begun) < d; {
		work(digests)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
