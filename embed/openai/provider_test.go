package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
)

const (
	small  = "text-embedding-3-small"
	large  = "text-embedding-3-large"
	ada    = "text-embedding-ada-002"
	secret = "sk-secret-0123456789"
)

// specOf returns the Spec of a provider that must be configured well.
func specOf(t testing.TB, model string, o Options) embed.Spec {
	t.Helper()
	if o.APIKey == "" {
		o.APIKey = secret
	}
	spec, err := New(model, &o).Spec()
	require.NoError(t, err)
	return spec
}

func TestSpecDefaults(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", secret)
	spec, err := New(small, nil).Spec()
	require.NoError(t, err)
	require.Equal(t, embed.Spec{
		Identity:          "https://api.openai.com/v1",
		Model:             small,
		ModelDimensions:   1536,
		Limits:            embed.Limits{Items: 2048, Tokens: 300_000, TextTokens: 8192},
		Tokenizer:         CL100K(),
		DollarsPerMillion: 0.02,
	}, spec)
}

func TestEnvironment(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "http://localhost:1234/v1/")
	spec, err := New("m", nil).Spec()
	require.NoError(t, err)
	require.Equal(t, "http://localhost:1234/v1", spec.Identity)
	require.True(t, spec.IdentityIsLocal)
	require.Equal(t, "https://api.voyageai.com/v1", specOf(t, "m", Options{BaseURL: "https://api.voyageai.com/v1"}).Identity)

	t.Setenv("OPENAI_API_KEY", "from-environment")
	require.Equal(t, "Bearer from-environment", New("m", nil).header.Get("Authorization"))
	require.Equal(t, "Bearer from-options", New("m", &Options{APIKey: "from-options"}).header.Get("Authorization"))
}

func TestIdentity(t *testing.T) {
	for _, test := range []struct{ base, want string }{
		{"https://api.openai.com/v1", "https://api.openai.com/v1"},
		{"https://api.openai.com/v1/", "https://api.openai.com/v1"},
		{"https://api.openai.com/v1//", "https://api.openai.com/v1"},
		{"HTTPS://API.OpenAI.com:443/v1", "https://api.openai.com/v1"},
		{"https://api.openai.com./v1", "https://api.openai.com/v1"},
		{"  https://api.openai.com/v1\n", "https://api.openai.com/v1"},
		{"https://api.openai.com/V1", "https://api.openai.com/V1"}, // paths have a case
		{"http://example.com:80", "http://example.com"},
		{"http://example.com:443/", "http://example.com:443"},
		{"https://user:password@example.com/v1?key=1#part", "https://example.com/v1?sha256=5d5a2f99dc823ee5357501a9a7f36c05c75ae708616f943ebcc21530b9d998cc"},
		{"http://[::1]:8080/v1", "http://[::1]:8080/v1"},
		{"http://[0:0:0:0:0:0:0:1]:8080/v1", "http://[::1]:8080/v1"},
		{"http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"},
		{"https://example.com/a%2Fb", "https://example.com/a%2Fb"},
	} {
		require.Equal(t, test.want, specOf(t, "m", Options{BaseURL: test.base}).Identity, test.base)
	}
}

func TestIdentityIsLocal(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "localhost.": true, "tei": true, "gpu.local": true, "gpu.internal": true, "x.localhost": true,
		"box.lan": true, "nas.home.arpa": true, "localhost.localdomain": true, "tei.default.svc": true,
		"127.0.0.1": true, "127.1.2.3": true, "[::1]": true, "10.1.2.3": true, "192.168.0.1": true, "172.16.0.1": true, "169.254.1.1": true,
		"[fe80::1]": true, "[fd00::1]": true, "[::ffff:127.0.0.1]": true, "0.0.0.0": true, "100.64.1.2": true,
		"api.openai.com": false, "8.8.8.8": false, "172.32.0.1": false, "[2001:4860::8888]": false, "local.example.com": false,
		"mylocal": true, "notlocal.com": false, "internal.com": false,
	} {
		require.Equal(t, want, specOf(t, "m", Options{BaseURL: "http://" + host + ":8080/v1"}).IdentityIsLocal, host)
	}
	spec := specOf(t, "m", Options{BaseURL: "http://localhost:8080", Name: "the lab's bge-m3"})
	require.Equal(t, "the lab's bge-m3", spec.Identity)
	require.False(t, spec.IdentityIsLocal)
}

// Every problem is in one error, each named by its option, and none prints a key
// or a password.
func TestProblems(t *testing.T) {
	for _, test := range []struct {
		name  string
		model string
		o     Options
		want  []string
	}{
		{"no key", small, Options{}, []string{"no API key for api.openai.com: set APIKey, or OPENAI_API_KEY in the environment"}},
		{"no key for a region", small, Options{BaseURL: "https://eu.api.openai.com/v1"}, []string{"no API key for eu.api.openai.com"}},
		{"no model", "", Options{APIKey: secret}, []string{"model is empty"}},
		{"a key with its line", small, Options{APIKey: secret + "\n"}, []string{"APIKey begins or ends with white space"}},
		{"a key with a null", small, Options{APIKey: "sk-\x00secret"}, []string{"control character"}},
		{"not a URL", "m", Options{BaseURL: "http://user:hunter2@exa mple.com"}, []string{"BaseURL can't be parsed"}},
		{"not a port", "m", Options{BaseURL: "http://user:hunter2@host:port"}, []string{"BaseURL can't be parsed"}},
		{"no scheme", "m", Options{BaseURL: "api.openai.com/v1"}, []string{"BaseURL must begin with http:// or https://"}},
		{"another scheme", "m", Options{BaseURL: "ftp://user:hunter2@host"}, []string{"BaseURL must begin with"}},
		{"no host", "m", Options{BaseURL: "http:///v1"}, []string{"BaseURL names no host"}},
		{"the endpoint", "m", Options{BaseURL: "http://host/v1/embeddings/"}, []string{"BaseURL ends in /embeddings"}},
		{"3-small with 0", small, Options{APIKey: secret, Dimensions: new(0)}, []string{"Dimensions is 0: text-embedding-3-small takes 1 to 1536"}},
		{"3-small with 1537", small, Options{APIKey: secret, Dimensions: new(1537)}, []string{"Dimensions is 1537: text-embedding-3-small takes 1 to 1536"}},
		{"3-large with 3073", large, Options{APIKey: secret, Dimensions: new(3073)}, []string{"Dimensions is 3073: text-embedding-3-large takes 1 to 3072"}},
		{"3-large with -1", large, Options{APIKey: secret, Dimensions: new(-1)}, []string{"Dimensions is -1: text-embedding-3-large takes 1 to 3072"}},
		{"ada with its own", ada, Options{APIKey: secret, Dimensions: new(1536)}, []string{"Dimensions is 1536: text-embedding-ada-002 takes none"}},
		{"a known model elsewhere", small, Options{BaseURL: "http://host.example/v1", Dimensions: new(4096)}, []string{"takes 1 to 1536"}},
		{"negative", "m", Options{APIKey: secret, Dimensions: new(-1)}, []string{"Dimensions is -1: give 0 or more"}},
		{"a role without a field", "bge-m3", Options{APIKey: secret, Role: "query"}, []string{`Role is set, but not how "bge-m3" is told about it: set RoleField, or Prefix`}},
		{"reserved fields", "m", Options{APIKey: secret, DimensionsField: "input", RoleField: "model"}, []string{`DimensionsField is "input"`, `RoleField is "model"`}},
		{"one field for two", "m", Options{APIKey: secret, RoleField: "dimensions"}, []string{`RoleField and DimensionsField are both "dimensions"`}},
		{"encoding", "m", Options{APIKey: secret, EncodingFormat: "ubinary"}, []string{`EncodingFormat is "ubinary"`}},
		{"not UTF-8", "m\xff", Options{APIKey: secret}, []string{"must be UTF-8"}},
		{"reserved parameters", "voyage-4", Options{APIKey: secret, Extra: map[string]any{
			"model": 1, "input": 1, "encoding_format": 1, "dimensions": 1, "output_dimension": 1, "input_type": 1,
		}}, []string{
			`Extra has "model": use New's argument model`, `Extra has "input": use the texts of Embed`,
			`Extra has "encoding_format": use Options.EncodingFormat`, `Extra has "dimensions": use Options.Dimensions`,
			`Extra has "output_dimension": use Options.Dimensions`, `Extra has "input_type": use Options.Role`,
		}},
		{"a dimensions field of the user's", "m", Options{APIKey: secret, DimensionsField: "size", Extra: map[string]any{"size": 5}}, []string{`Extra has "size": use Options.Dimensions`}},
		{"no JSON", "m", Options{APIKey: secret, Extra: map[string]any{"f": func() {}, "n": math.NaN()}}, []string{
			`Extra has "f" with a value of type func() that JSON can't hold`, `Extra has "n" with a value of type float64`,
		}},
		{"quantised vectors", "voyage-4", Options{APIKey: secret, Extra: map[string]any{"output_dtype": "int8", "embedding_type": "binary"}}, []string{
			`Extra has "output_dtype" with a value other than "float"`, `Extra has "embedding_type"`,
		}},
		{"other kinds of numbers", "m", Options{APIKey: secret, Extra: map[string]any{
			"embed_dtype": "float16", "endianness": "native", "embedding_types": []string{"int8", "float"},
		}}, []string{
			`Extra has "embed_dtype" with a value other than "float32"`, `Extra has "endianness" with a value other than "little"`,
			`Extra has "embedding_types" with a value other than ["float"]`,
		}},
		{"headers", "m", Options{APIKey: secret, Header: http.Header{"Bad Name": {"x"}, "Good": {"bad\r\nvalue"}}}, []string{
			`Header "Bad Name" can't be sent`, `Header "Good" can't be sent`,
		}},
		{"organisation", "m", Options{APIKey: secret, Organization: "a\nb", Project: "a\x00", APIVersion: "\x7f"}, []string{"Organization has", "Project has", "APIVersion has"}},
		{"numbers", "m", Options{APIKey: secret, DollarsPerMillion: -1, MaxAnswerBytes: -1, Limits: &embed.Limits{Items: -1}}, []string{
			"DollarsPerMillion is -1", "MaxAnswerBytes is -1", "Limits has a negative number",
		}},
		{"all at once", small, Options{BaseURL: "x", Dimensions: new(0), Role: "query", MaxAnswerBytes: -1}, []string{"BaseURL", "Dimensions", "Role", "MaxAnswerBytes"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := New(test.model, &test.o)
			_, err := p.Spec()
			require.Error(t, err)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(test.want), err.Error())
			for _, line := range lines {
				require.True(t, strings.HasPrefix(line, "openai: "), line)
			}
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
			for _, hidden := range []string{"hunter2", "secret", "bad\r\n"} {
				require.NotContains(t, err.Error(), hidden)
			}
			_, sendErr := p.Embed(t.Context(), []string{"x"})
			require.Equal(t, err, sendErr, "a bad configuration sends nothing")
		})
	}
}

func TestFloatsAreUnderstood(t *testing.T) {
	specOf(t, "m", Options{APIKey: secret, Extra: map[string]any{
		"output_dtype": "float", "embedding_type": "base64", "embedding_types": []string{"float"}, "embed_dtype": "float32", "endianness": "little",
	}})
	specOf(t, "m", Options{APIKey: secret, Extra: map[string]any{"embedding_type": "float"}})
}

func TestValidDimensions(t *testing.T) {
	for _, test := range []struct {
		model string
		n     int
	}{{small, 1}, {small, 1536}, {large, 1}, {large, 3072}, {"unknown", 0}, {"unknown", 1 << 20}, {"my-" + small, 5000}, {"voyage-4", 123}} {
		require.Equal(t, test.n, *specOf(t, test.model, Options{Dimensions: &test.n}).Dimensions)
	}
	require.Nil(t, specOf(t, small, Options{}).Dimensions)
	require.Equal(t, 3072, specOf(t, large, Options{}).ModelDimensions)
	require.Equal(t, 1536, specOf(t, ada, Options{}).ModelDimensions)
	require.Zero(t, specOf(t, "unknown", Options{}).ModelDimensions)
}

func TestNoKeyNeeded(t *testing.T) {
	for _, o := range []Options{
		{BaseURL: "http://localhost:11434/v1"},
		{BaseURL: "https://openai.example.com/v1"},
		{Header: http.Header{"Authorization": {"Bearer own"}}},
	} {
		p := New(small, &o)
		_, err := p.Spec()
		require.NoError(t, err)
	}
	require.Empty(t, New("m", &Options{BaseURL: "http://localhost:11434/v1"}).header.Get("Authorization"))
}

func TestLimits(t *testing.T) {
	openAI := embed.Limits{Items: 2048, Tokens: 300_000, TextTokens: 8192}
	for _, test := range []struct {
		base, model string
		want        embed.Limits
	}{
		{"https://api.openai.com/v1", ada, openAI},
		{"https://eu.api.openai.com/v1", small, openAI},
		{"https://x.openai.azure.com/openai/v1", "my-deployment", openAI},
		{"https://api.voyageai.com/v1", "voyage-4-lite", embed.Limits{Items: 1000, Tokens: 1_000_000, TextTokens: 32_000}},
		{"https://api.voyageai.com/v1", "voyage-3.5", embed.Limits{Items: 1000, Tokens: 320_000, TextTokens: 32_000}},
		{"https://api.voyageai.com/v1", "voyage-law-2", embed.Limits{Items: 1000, Tokens: 120_000, TextTokens: 16_000}},
		{"https://api.voyageai.com/v1", "voyage-9", embed.Limits{Items: 1000, Tokens: 120_000, TextTokens: 32_000}},
		{"https://proxy.example/v1", "voyage-code-3", embed.Limits{Items: 1000, Tokens: 120_000, TextTokens: 32_000}},
		{"https://generativelanguage.googleapis.com/v1beta/openai", "gemini-embedding-001", embed.Limits{Items: 100, TextTokens: 2048}},
		{"https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "text-embedding-v4", embed.Limits{Items: 10}},
		{"http://localhost:8080/v1", "bge-m3", embed.Limits{Items: 32, Bytes: 1_000_000}},
		{"http://localhost:8080/v1", "voyage-4-nano", embed.Limits{Items: 32, Bytes: 1_000_000}},
		{"http://localhost:8080/v1", small, embed.Limits{Items: 32, Bytes: 1_000_000, TextTokens: 8192}},
		{"https://notapi.openai.com.example/v1", "m", embed.Limits{Items: 32, Bytes: 1_000_000}},
		{"https://fakeapi.openai.com.evil.example/v1", "m", embed.Limits{Items: 32, Bytes: 1_000_000}},
		{"https://xapi.openai.com/v1", "m", embed.Limits{Items: 32, Bytes: 1_000_000}},
	} {
		require.Equal(t, test.want, specOf(t, test.model, Options{BaseURL: test.base}).Limits, "%s %s", test.base, test.model)
	}
	own := embed.Limits{Items: 7}
	require.Equal(t, own, specOf(t, small, Options{Limits: &own}).Limits)
}

func TestTokenizer(t *testing.T) {
	for _, test := range []struct {
		base, model string
		want        embed.Tokenizer
	}{
		{"https://api.openai.com/v1", small, cl100k{exact: true}},
		{"https://api.openai.com/v1", "text-embedding-4", cl100k{}},
		{"https://x.openai.azure.com/openai/v1", "deployment", cl100k{exact: true}},
		{"http://localhost/v1", large, cl100k{exact: true}},
		{"http://localhost/v1", "bge-m3", nil},
		{"https://api.voyageai.com/v1", "voyage-4", nil},
	} {
		require.Equal(t, test.want, specOf(t, test.model, Options{BaseURL: test.base}).Tokenizer)
	}
	require.Equal(t, embed.Estimate, specOf(t, small, Options{Tokenizer: embed.Estimate}).Tokenizer)
	require.False(t, cl100k{}.Exact())
}

func TestPrice(t *testing.T) {
	require.Equal(t, 0.13, specOf(t, large, Options{}).DollarsPerMillion)
	require.Equal(t, 0.10, specOf(t, ada, Options{}).DollarsPerMillion)
	require.Equal(t, 0.5, specOf(t, ada, Options{DollarsPerMillion: 0.5}).DollarsPerMillion)
	require.Zero(t, specOf(t, "unknown", Options{}).DollarsPerMillion)
}

// What can change a vector is in the Spec, and stays as it was when New was
// called.
func TestParams(t *testing.T) {
	extra := map[string]any{"truncate": "END", "nested": map[string]any{"n": json.Number("9007199254740993")}, "user": "me", "zero": nil, "html": "<&>"}
	n := 256
	p := New("m", &Options{APIKey: secret, Extra: extra, Dimensions: &n, Role: "query", RoleField: "task", Prefix: "query: "})
	want := `{"html":"<&>","nested":{"n":9007199254740993},"task":"query","truncate":"END","zero":null}`
	for range 2 {
		spec, err := p.Spec()
		require.NoError(t, err)
		got, err := json.Marshal(spec.Params)
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
		require.Contains(t, string(got), "9007199254740993")
		require.Equal(t, 256, *spec.Dimensions)
		require.Equal(t, "query", spec.Role)
		require.Equal(t, "query: ", spec.Prefix)
		// Neither the caller's nor the answer's changes reach it.
		extra["truncate"], n = "START", 1
		spec.Params["truncate"] = "NONE"
		*spec.Dimensions = 2
	}
	require.Nil(t, specOf(t, "m", Options{Extra: map[string]any{"user": "me"}}).Params, "user can't change a vector")
}

// The name under which the API is told of role and dimensions is part of the key:
// one that it ignores gives other vectors than the right one.
func TestFieldNamesAreParams(t *testing.T) {
	require.Equal(t, map[string]any{"input_type": "query"}, specOf(t, "m", Options{Role: "query", RoleField: "input_type"}).Params)
	require.Equal(t, map[string]any{"inputtype": "query"}, specOf(t, "m", Options{Role: "query", RoleField: "inputtype"}).Params)
	require.Equal(t, map[string]any{"output_dimension": 256}, specOf(t, "m", Options{Dimensions: new(256), DimensionsField: "output_dimension"}).Params)
	require.Nil(t, specOf(t, "m", Options{Dimensions: new(256)}).Params)
}

func TestProviderPrintsNoKey(t *testing.T) {
	p := New(small, &Options{APIKey: secret, BaseURL: "https://u:" + secret + "@example.com/v1?k=" + secret})
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		printed := fmt.Sprintf(format, p)
		require.True(t, strings.HasPrefix(printed, `openai.Provider("text-embedding-3-small" at https://example.com/v1?sha256=`), printed)
		require.NotContains(t, printed, secret)
	}
}
