package s3_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/backend/s3"
)

// A server in the process takes the place of Amazon's here. With theirs, nil is enough
// for the options: region and credentials come from where the AWS tools have them.
func ExampleOpen() {
	store := s3mem.New()
	server := httptest.NewServer(gofakes3.New(store).Server())
	defer server.Close()
	if err := store.CreateBucket("vectors"); err != nil {
		log.Fatal(err)
	}
	options := &s3.Options{Endpoint: server.URL, Credentials: credentials.NewStaticCredentialsProvider("access", "secret", "")}

	writer, err := s3.Open("s3://vectors/team", options)
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Close()
	ctx := context.Background()
	err = writer.SetMany(ctx, []backend.Item{{Key: backend.Key{1}, Value: []byte("a vector")}, {Key: backend.Key{2}, Value: []byte("another")}})
	if err != nil {
		log.Fatal(err)
	}

	// Another machine.
	reader, err := s3.Open("s3://vectors/team", options)
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	err = reader.GetMany(ctx, []backend.Key{{1}, {9}}, func(i int, value []byte) error {
		fmt.Printf("key %d: %s\n", i, value)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("PUTs:", writer.Counters().Puts)
	fmt.Println("reaches:", reader.Info().Reach)
	// Output:
	// key 0: a vector
	// PUTs: 1
	// reaches: hosts
}
