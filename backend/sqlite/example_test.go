package sqlite_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/sqlite"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	cache, err := sqlite.Open(filepath.Join(dir, "vectors.db"), nil)
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

// A program that only reads a cache that was built elsewhere, such as one in a
// container image, needs no right to write.
func ExampleOpen_immutable() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "vectors.db")

	build, err := sqlite.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	key := backend.Key(sha256.Sum256([]byte("one")))
	if err := build.SetMany(context.Background(), []backend.Item{{Key: key, Value: []byte("first")}}); err != nil {
		log.Fatal(err)
	}
	if err := build.Close(); err != nil {
		log.Fatal(err)
	}

	cache, err := sqlite.Open(path, &sqlite.Options{Immutable: true})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	err = cache.GetMany(context.Background(), []backend.Key{key}, func(_ int, value []byte) error {
		fmt.Printf("%s\n", value)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: first
}
