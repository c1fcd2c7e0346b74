package openai

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
)

// received is a request as a server got it.
type received struct {
	*http.Request
	body string
}

// serve starts a server that notes requests and answers with one vector.
func serve(t testing.TB, got *received) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*got = received{r, string(body)}
		_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":"`+base64Of(1, 2)+`"}],"model":"m","usage":{"prompt_tokens":4}}`)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestGoldenBodies(t *testing.T) {
	var got received
	server := serve(t, &got)
	for _, test := range []struct {
		name  string
		model string
		o     Options
		texts []string
		want  string
	}{
		{"plain", small, Options{}, []string{"hello", "world"},
			`{"model":"text-embedding-3-small","input":["hello","world"],"encoding_format":"base64"}`},
		{"dimensions", small, Options{Dimensions: new(256)}, []string{"a"},
			`{"model":"text-embedding-3-small","input":["a"],"encoding_format":"base64","dimensions":256}`},
		{"dimensions 0 are sent", "m", Options{Dimensions: new(0)}, []string{"a"},
			`{"model":"m","input":["a"],"encoding_format":"base64","dimensions":0}`},
		{"Voyage", "voyage-4", Options{Dimensions: new(512), Role: "query"}, []string{"a"},
			`{"model":"voyage-4","input":["a"],"encoding_format":"base64","output_dimension":512,"input_type":"query"}`},
		{"not Voyage", "my-voyage-clone", Options{Dimensions: new(512)}, []string{"a"},
			`{"model":"my-voyage-clone","input":["a"],"encoding_format":"base64","dimensions":512}`},
		{"an alias of Voyage's", "my-voyage-clone", Options{Dimensions: new(512), DimensionsField: "output_dimension", Role: "document", RoleField: "input_type"}, []string{"a"},
			`{"model":"my-voyage-clone","input":["a"],"encoding_format":"base64","output_dimension":512,"input_type":"document"}`},
		{"the Client puts the prefix", "m", Options{Prefix: "query: "}, []string{"query: a"},
			`{"model":"m","input":["query: a"],"encoding_format":"base64"}`},
		{"extra parameters in order", "m", Options{Extra: map[string]any{"z": 1, "a": []string{"<b>"}, "user": "me", "big": json.Number("9007199254740993")}}, []string{"a"},
			`{"model":"m","input":["a"],"encoding_format":"base64","a":["<b>"],"big":9007199254740993,"user":"me","z":1}`},
		{"no model", "", Options{}, []string{"a"}, `{"input":["a"],"encoding_format":"base64"}`},
		{"floats", "m", Options{EncodingFormat: "float"}, []string{"a"}, `{"model":"m","input":["a"],"encoding_format":"float"}`},
		{"no format", "m", Options{EncodingFormat: "none"}, []string{"a"}, `{"model":"m","input":["a"]}`},
		{"escapes", "m\"\\", Options{}, []string{"<a href=\"x\">&amp;</a>\\", "\n\t\r\b\x00\x1f\x7f", "é 日本 😀\u2028", "\xff\xc3", ""},
			`{"model":"m\"\\","input":["<a href=\"x\">&amp;</a>\\","\n\t\r\u0008\u0000\u001f` + "\x7f" + `","é 日本 😀` + "\u2028" + `","` + "\uFFFD\uFFFD" + `",""],"encoding_format":"base64"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.o.BaseURL = server.URL + "/v1"
			answer, err := New(test.model, &test.o).Embed(t.Context(), test.texts)
			require.NoError(t, err)
			require.Equal(t, &embed.Answer{Vectors: [][]float32{{1, 2}}, Index: []int{0}, Model: "m", Tokens: 4}, answer)
			require.Equal(t, test.want, got.body)
			require.True(t, json.Valid([]byte(got.body)))
			require.Equal(t, "POST", got.Method)
			require.Equal(t, "/v1/embeddings", got.URL.Path)
			require.Equal(t, "application/json", got.Header.Get("Content-Type"))
			require.EqualValues(t, len(test.want), got.ContentLength)
		})
	}
	require.Equal(t, "float", New("gemini-embedding-001", &Options{BaseURL: "https://generativelanguage.googleapis.com/v1beta/openai/"}).encoding(t))
}

// encoding returns the encoding_format that p sends.
func (p *Provider) encoding(t testing.TB) string {
	var body struct {
		Format string `json:"encoding_format"`
	}
	require.NoError(t, json.Unmarshal(p.requestBody([]string{"x"}), &body))
	return body.Format
}

// Whatever the text, the server reads what was sent.
func TestBodyRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	p := New("m", &Options{BaseURL: "http://localhost", Extra: map[string]any{"x": "y"}})
	for range 200 {
		var texts []string
		for range 1 + r.IntN(4) {
			b := make([]byte, r.IntN(30))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			texts = append(texts, string(b)+randomText(r, r.IntN(20)))
		}
		requireBody(t, p, texts)
	}
}

func requireBody(t testing.TB, p *Provider, texts []string) {
	t.Helper()
	var body struct{ Input []string }
	require.NoError(t, json.Unmarshal(p.requestBody(texts), &body))
	marshalled, err := json.Marshal(texts)
	require.NoError(t, err)
	var want []string
	require.NoError(t, json.Unmarshal(marshalled, &want))
	require.Equal(t, want, body.Input)
}

func FuzzBody(f *testing.F) {
	p := New("m", &Options{BaseURL: "http://localhost"})
	for _, text := range []string{"", "a", "\"\\/", "\x00\x1f\n", "é\xff\xed\xa0\x80", "</script>&\u2028\u2029\U0001F600", strings.Repeat("\\", 9)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { requireBody(t, p, []string{text, text + "x"}) })
}

func TestHeaders(t *testing.T) {
	var got received
	server := serve(t, &got)
	send := func(o Options) http.Header {
		if o.BaseURL == "" {
			o.BaseURL = server.URL + "/v1"
		}
		_, err := New("m", &o).Embed(t.Context(), []string{"x"})
		require.NoError(t, err)
		return got.Header
	}
	h := send(Options{APIKey: secret, Organization: "org", Project: "proj"})
	require.Equal(t, "Bearer "+secret, h.Get("Authorization"))
	require.Equal(t, "org", h.Get("OpenAI-Organization"))
	require.Equal(t, "proj", h.Get("OpenAI-Project"))
	require.Empty(t, h.Get("api-key"))

	h = send(Options{})
	for _, name := range []string{"Authorization", "OpenAI-Organization", "OpenAI-Project", "api-key"} {
		require.Empty(t, h.Values(name), name)
	}

	own := http.Header{"x-trace": {"1", "2"}, "Authorization": {"Basic abc"}, "User-Agent": {"mine"}, "Host": {"virtual.example"}}
	h = send(Options{APIKey: secret, Header: own})
	require.Equal(t, []string{"1", "2"}, h.Values("X-Trace"))
	require.Equal(t, "Basic abc", h.Get("Authorization"))
	require.Equal(t, "mine", h.Get("User-Agent"))
	require.Equal(t, "virtual.example", got.Host)

	// Credentials in the URL are sent, as net/http does.
	h = send(Options{BaseURL: strings.Replace(server.URL, "//", "//user:hunter2@", 1)})
	require.Equal(t, "Basic dXNlcjpodW50ZXIy", h.Get("Authorization"))
}

func TestAzure(t *testing.T) {
	var got received
	server := serve(t, &got)
	base := server.URL + "/openai/deployments/my%20embeddings/"
	p := New("", &Options{BaseURL: base, APIKey: secret, APIVersion: "2024-10-21"})
	_, err := p.Embed(t.Context(), []string{"x"})
	require.NoError(t, err)
	require.Equal(t, "/openai/deployments/my%20embeddings/embeddings", got.URL.EscapedPath())
	require.Equal(t, "api-version=2024-10-21", got.URL.RawQuery)
	require.Equal(t, secret, got.Header.Get("api-key"))
	require.Empty(t, got.Header.Values("Authorization"))
	spec, err := p.Spec()
	require.NoError(t, err)
	require.Equal(t, server.URL+"/openai/deployments/my%20embeddings", spec.Identity, "the version is not part of it")

	// A query of the base URL is kept; its api-version is replaced.
	p = New("m", &Options{BaseURL: server.URL + "/openai/v1?a=b&api-version=old", APIKey: secret, APIVersion: "preview"})
	_, err = p.Embed(t.Context(), []string{"x"})
	require.NoError(t, err)
	require.Equal(t, "/openai/v1/embeddings", got.URL.Path)
	require.Equal(t, "a=b&api-version=preview", got.URL.RawQuery)
}

func TestHTTPClient(t *testing.T) {
	var got received
	server := serve(t, &got)
	used := false
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		used = true
		return http.DefaultTransport.RoundTrip(r)
	})}
	_, err := New("m", &Options{BaseURL: server.URL, HTTPClient: client}).Embed(t.Context(), []string{"x"})
	require.NoError(t, err)
	require.True(t, used)
	require.Nil(t, client.CheckRedirect, "the caller's client was changed")
	require.Equal(t, "/embeddings", got.URL.Path)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestNoTexts(t *testing.T) {
	_, err := New("m", &Options{BaseURL: "http://localhost"}).Embed(t.Context(), nil)
	require.ErrorContains(t, err, "no texts")
}
