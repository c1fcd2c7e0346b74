package redis_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/redis"
)

// It isn't run by the tests, since it needs a server.
func ExampleOpen() {
	cache, err := redis.Open("redis://user:password@localhost:6379/0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()

	ctx := context.Background()
	key := backend.Key(sha256.Sum256([]byte("one")))
	if err := cache.SetMany(ctx, []backend.Item{{Key: key, Value: []byte("first")}}); err != nil {
		log.Fatal(err)
	}
	err = cache.GetMany(ctx, []backend.Key{key}, func(i int, value []byte) error {
		fmt.Printf("key %d: %s\n", i, value)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A cluster whose batches are atomic, with entries that live for about a month.
func ExampleNew() {
	client := driver.NewClusterClient(&driver.ClusterOptions{
		Addrs:                 []string{"one:6379", "two:6379", "three:6379"},
		ContextTimeoutEnabled: true, // deadlines then end a request, and not only the call
	})
	defer client.Close()
	cache, err := redis.New(client, &redis.Options{
		Prefix: "{embedonce}:",
		TTL:    30 * 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	fmt.Println("atomic:", cache.Info().Atomic)
}
