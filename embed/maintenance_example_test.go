package embed_test

import (
	"context"
	"fmt"
	"time"

	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/hashing"
)

// Keep what is younger than half a year, and of that the newest 5,000 bytes.
func ExamplePrune() {
	ctx := context.Background()
	cache, _ := memory.New(nil)
	client, _ := embed.New(hashing.New(nil), &embed.Options{Cache: cache})
	if _, err := client.Embed(ctx, []string{"one text", "another", "a third"}); err != nil {
		fmt.Println(err)
		return
	}

	report, err := embed.Prune(ctx, cache, &embed.PruneOptions{OlderThan: 180 * 24 * time.Hour, MaxBytes: 5000})
	fmt.Println("records:", report.Records, "removed:", report.Removed, err)
	// Output: records: 3 removed: 1 <nil>
}

// The Client tells whose records are to be checked against their keys.
func ExampleVerify() {
	ctx := context.Background()
	cache, _ := memory.New(nil)
	client, _ := embed.New(hashing.New(nil), &embed.Options{Cache: cache})
	if _, err := client.Embed(ctx, []string{"one text", "another"}); err != nil {
		fmt.Println(err)
		return
	}

	report, err := embed.Verify(ctx, cache, &embed.VerifyOptions{Clients: []*embed.Client{client}, Drop: true})
	fmt.Println("valid:", report.Valid, "bad:", report.Bad, "dropped:", report.Dropped, err)
	// Output: valid: 2 bad: map[] dropped: 0 <nil>
}

func ExampleClient_Forget() {
	ctx := context.Background()
	cache, _ := memory.New(nil)
	client, _ := embed.New(hashing.New(nil), &embed.Options{Cache: cache})
	if _, err := client.Embed(ctx, []string{"a private text", "another"}); err != nil {
		fmt.Println(err)
		return
	}

	removed, err := client.Forget(ctx, []string{"a private text", "never stored"})
	fmt.Println("removed:", removed, err)
	// Output: removed: 1 <nil>
}
