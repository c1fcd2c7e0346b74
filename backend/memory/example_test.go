package memory_test

import (
	"context"
	"fmt"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/memory"
)

func Example() {
	cache, err := memory.New(&memory.Options{MaxBytes: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cache.Close()

	ctx := context.Background()
	key := backend.Key{1}
	if err := cache.SetMany(ctx, []backend.Item{{Key: key, Value: []byte("a vector")}}); err != nil {
		fmt.Println(err)
	}
	err = cache.GetMany(ctx, []backend.Key{key}, func(i int, value []byte) error {
		fmt.Printf("%s\n", value)
		return nil
	})
	fmt.Println(err)
	// Output:
	// a vector
	// <nil>
}
