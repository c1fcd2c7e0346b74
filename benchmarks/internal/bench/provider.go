package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/embedonce/embedonce/backend"
	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/embedtest"
	"github.com/embedonce/embedonce/embed/openai"
)

// model is the one of every fake.
const model = "text-embedding-3-small"

// LocalProvider returns a provider in this process that answers at once: the cheapest
// way to fill a store. Its vectors and keys are not those of a Server.
func LocalProvider(dims int) *embedtest.Provider {
	return embedtest.NewProvider(&embedtest.Options{Dimensions: dims, NoLog: true})
}

// Server is a fake HTTP server on the loopback interface that takes so long for each
// request and answers in base64.
type Server struct {
	*embedtest.Server
	dims   int
	client *http.Client
}

// NewServer starts a Server, which the end of the run stops.
func (r *Run) NewServer(dims int, latency time.Duration) *Server {
	// Connections are kept, however many requests run at once; the default transport
	// keeps two for a host.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 1024
	s := &Server{
		embedtest.NewServer(&embedtest.Options{Dimensions: dims, Latency: latency, NoLog: true}),
		dims, &http.Client{Transport: transport},
	}
	r.Cleanup(func() error {
		transport.CloseIdleConnections()
		s.Close()
		return nil
	})
	return s
}

// Provider returns a provider that asks the server as it would ask OpenAI: over
// HTTP, in requests of at most 2,048 texts. Its keys don't depend on the server's
// port, so a store that was filled through one server serves another.
func (s *Server) Provider() *openai.Provider { return s.ProviderOf(2048) }

// ProviderOf is Provider with requests of at most so many texts; its keys are the
// same.
func (s *Server) ProviderOf(items int) *openai.Provider {
	return openai.New(model, &openai.Options{
		BaseURL: s.BaseURL, APIKey: "none", Name: "embedonce-bench", Dimensions: &s.dims, HTTPClient: s.client,
		Limits: &embed.Limits{Items: items, Tokens: 300_000, TextTokens: 8192},
	})
}

// Fill embeds texts through a Client, which stores their vectors in c.
func Fill(ctx context.Context, c backend.Cache, provider embed.Provider, texts []string) error {
	client, err := embed.New(provider, &embed.Options{Cache: c})
	if err != nil {
		return err
	}
	defer client.Close()
	const chunk = 2048
	for from := 0; from < len(texts); from += chunk {
		response, err := client.Embed(ctx, texts[from:min(from+chunk, len(texts))])
		if err != nil {
			return err
		}
		if response.CacheErr != nil {
			return fmt.Errorf("filling a store: %w", response.CacheErr)
		}
	}
	return nil
}
