package bolt_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/bolt"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	cache, err := bolt.Open(filepath.Join(dir, "vectors.bolt"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()

	ctx := context.Background()
	one, two := backend.Key(sha256.Sum256([]byte("one"))), backend.Key(sha256.Sum256([]byte("two")))
	err = cache.SetMany(ctx, []backend.Item{{Key: one, Value: []byte("first")}})
	if err != nil {
		log.Fatal(err)
	}
	err = cache.GetMany(ctx, []backend.Key{one, two}, func(i int, value []byte) error {
		fmt.Printf("key %d: %s\n", i, value)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("survives:", cache.Info().Durability)
	// Output:
	// key 0: first
	// survives: power loss
}

// Deleted entries leave room in the file; Rewrite makes a file without it.
func ExampleRewrite() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "vectors.bolt")
	ctx := context.Background()

	cache, err := bolt.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	key := backend.Key(sha256.Sum256([]byte("one")))
	if err := cache.SetMany(ctx, []backend.Item{{Key: key, Value: []byte("first")}}); err != nil {
		log.Fatal(err)
	}
	if err := cache.Close(); err != nil { // it must not be open for writing
		log.Fatal(err)
	}
	if err := bolt.Rewrite(ctx, path, path+".new", nil); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		log.Fatal(err)
	}

	cache, err = bolt.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	stats, err := cache.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("entries:", stats.Entries)
	// Output: entries: 1
}
