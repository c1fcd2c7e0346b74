package embed_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/stretchr/testify/require"
)

// passages returns n distinct texts of about 740 bytes.
func passages(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("passage %d: %s", i, strings.Repeat("a cache keeps what was paid for. ", 22))
	}
	return texts
}

// warm returns a client whose memory cache has all texts, of 1,536 dimensions.
func warm(tb testing.TB, texts []string) *embed.Client {
	cache, err := memory.New(&memory.Options{MaxBytes: 1 << 30})
	require.NoError(tb, err)
	provider := embedtest.NewProvider(&embedtest.Options{Dimensions: 1536, NoLog: true})
	client, err := embed.New(provider, &embed.Options{Cache: cache})
	require.NoError(tb, err)
	_, err = client.Embed(context.Background(), texts)
	require.NoError(tb, err)
	return client
}

func BenchmarkEmbedHits(b *testing.B) {
	for _, n := range []int{1, 16, 128, 512, 4096} {
		b.Run(fmt.Sprintf("memory/n=%d", n), func(b *testing.B) {
			texts := passages(n)
			client := warm(b, texts)
			call := &embed.Call{Texts: texts, CacheOnly: true, Into: make([]float32, n*1536)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Do(context.Background(), call); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n)/1e3, "µs/text")
		})
	}
}
