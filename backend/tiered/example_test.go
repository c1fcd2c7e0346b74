package tiered_test

import (
	"context"
	"fmt"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
	"github.com/embedonce/embedonce/backend/tiered"
)

func Example() {
	fast, err := memory.New(&memory.Options{MaxBytes: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	slow, err := memory.New(nil) // a file or a server, in real life
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	key := backend.Key{1}
	if err := slow.SetMany(ctx, []backend.Item{{Key: key, Value: []byte("a vector")}}); err != nil {
		fmt.Println(err)
	}

	cache, err := tiered.New(fast, slow, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cache.Close() // closes both layers
	for range 3 {
		err := cache.GetMany(ctx, []backend.Key{key}, func(_ int, value []byte) error {
			fmt.Printf("%s\n", value)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	counts := cache.Counts()
	fmt.Println("from slow:", counts.Slow, "from fast:", counts.Fast)
	// Output:
	// a vector
	// a vector
	// a vector
	// from slow: 1 from fast: 2
}
