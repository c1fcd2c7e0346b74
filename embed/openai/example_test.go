package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/embedonce/embedonce/embed"
	"github.com/embedonce/embedonce/embed/openai"
)

// answer stands in for an embeddings API in these examples.
func answer(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, `{"data":[{"index":0,"embedding":[0.6,0.8]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":2}}`)
}

// A Provider is usually given to embed.New, which caches, batches and retries.
// Here it is asked directly.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(answer))
	defer server.Close()

	provider := openai.New("text-embedding-3-small", &openai.Options{
		BaseURL:    server.URL + "/v1", // leave it out for OpenAI itself
		APIKey:     "sk-...",           // leave it out for the environment's OPENAI_API_KEY
		Dimensions: new(2),
	})
	if _, err := provider.Spec(); err != nil { // embed.New does this
		log.Fatal(err)
	}
	got, err := provider.Embed(context.Background(), []string{"hello world"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.Vectors[0], got.Tokens, "tokens")
	// Output: [0.6 0.8] 2 tokens
}

// Spec has everything that is wrong with the options, so that nothing is sent
// with them.
func ExampleNew_problems() {
	_, err := openai.New("text-embedding-3-small", &openai.Options{
		BaseURL:    "api.example.com/v1",
		Dimensions: new(4096),
		Extra:      map[string]any{"dimensions": 256},
	}).Spec()
	fmt.Println(err)
	// Output:
	// openai: BaseURL must begin with http:// or https://
	// openai: Dimensions is 4096: text-embedding-3-small takes 1 to 1536
	// openai: Extra has "dimensions": use Options.Dimensions instead
}

// Voyage tells queries from documents: make one Provider, and with it one Client,
// for each role. They may share a cache.
func ExampleNew_voyage() {
	voyage := func(role string) *openai.Provider {
		return openai.New("voyage-4", &openai.Options{
			BaseURL:    "https://api.voyageai.com/v1",
			APIKey:     "pa-...",
			Role:       role,
			Dimensions: new(512), // sent as Voyage's output_dimension
		})
	}
	documents, queries := voyage("document"), voyage("query")
	for _, provider := range []*openai.Provider{documents, queries} {
		spec, err := provider.Spec()
		fmt.Println(spec.Identity, spec.Role, spec.Limits.Items, err)
	}
	// Output:
	// https://api.voyageai.com/v1 document 1000 <nil>
	// https://api.voyageai.com/v1 query 1000 <nil>
}

// entraID adds a token of Microsoft Entra ID (Azure AD) to each request. Get is
// where the Azure SDK comes in, if you use it: a credential of azidentity has a
// method GetToken, which caches and refreshes, to be asked for the scope
// "https://cognitiveservices.azure.com/.default".
type entraID struct {
	Get  func(ctx context.Context) (token string, err error)
	Next http.RoundTripper
}

func (t *entraID) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.Get(r.Context())
	if err != nil {
		_ = r.Body.Close() // a RoundTripper must, also when it fails
		return nil, fmt.Errorf("no token from Entra ID: %w", err)
	}
	r = r.Clone(r.Context()) // and it must not change the request
	r.Header.Set("Authorization", "Bearer "+token)
	return t.Next.RoundTrip(r)
}

// Azure OpenAI with tokens instead of a key.
func ExampleOptions_azureEntraID() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.URL.Path, r.Header.Get("Authorization"))
		answer(w, r)
	}))
	defer server.Close()

	provider := openai.New("my-deployment", &openai.Options{
		BaseURL: server.URL + "/openai/v1", // https://RESOURCE.openai.azure.com/openai/v1
		HTTPClient: &http.Client{Transport: &entraID{
			Get:  func(context.Context) (string, error) { return "eyJ0...", nil },
			Next: http.DefaultTransport,
		}},
	})
	got, err := provider.Embed(context.Background(), []string{"hello world"})
	fmt.Println(len(got.Vectors), err)
	// Output:
	// /openai/v1/embeddings Bearer eyJ0...
	// 1 <nil>
}

// middleware is a RoundTripper made of a function.
type middleware func(*http.Request) (*http.Response, error)

func (f middleware) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Any middleware goes into the HTTP client: tracing, metrics, a proxy's headers,
// a rate limiter.
func ExampleOptions_middleware() {
	server := httptest.NewServer(http.HandlerFunc(answer))
	defer server.Close()

	var requests atomic.Int64
	counted := middleware(func(r *http.Request) (*http.Response, error) {
		begun := time.Now()
		response, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			requests.Add(1)
			_ = time.Since(begun) // to a histogram
		}
		return response, err
	})
	provider := openai.New("bge-m3", &openai.Options{
		BaseURL:    server.URL,
		HTTPClient: &http.Client{Transport: counted},
	})
	for range 3 {
		if _, err := provider.Embed(context.Background(), []string{"hello world"}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(requests.Load(), "requests")
	// Output: 3 requests
}

// What a provider writes about an error can quote texts or keys, so it is not
// part of the error's message.
func ExampleProvider_Embed_errors() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.Header().Set("x-request-id", "req_123")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":{"message":"Rate limit reached for org-1","type":"tokens","code":"rate_limit_exceeded"}}`)
	}))
	defer server.Close()

	_, err := openai.New("m", &openai.Options{BaseURL: server.URL}).Embed(context.Background(), []string{"x"})
	fmt.Println(err)
	if failure, ok := errors.AsType[*embed.ProviderError](err); ok {
		fmt.Println(failure.Transient, failure.RetryAfter, failure.Detail())
	}
	// Output:
	// provider answered status 429, code rate_limit_exceeded, type tokens, request req_123, retry after 20s
	// true 20s Rate limit reached for org-1
}

func ExampleCL100K() {
	tokenizer := openai.CL100K()
	fmt.Println(tokenizer.Count("Pay for each embedding once."))
	prefix, tokens := tokenizer.Cut("Pay for each embedding once.", 4)
	fmt.Printf("%q %d\n", prefix, tokens)
	// Output:
	// 6
	// "Pay for each embedding" 4
}
