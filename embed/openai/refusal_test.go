package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
)

// text is what is sent in these tests: no error may quote it.
const text = "the patient's name"

// embedErr sends text to a handler and returns the error, which must be a
// *embed.ProviderError without the text or the key.
func embedErr(t testing.TB, o Options, handler http.HandlerFunc) *embed.ProviderError {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	o.BaseURL, o.APIKey = strings.Replace(server.URL, "//", "//user:hunter2@", 1)+"/v1?k=query-secret", secret
	answer, err := New("m", &o).Embed(t.Context(), []string{text})
	return requireProviderError(t, answer, err)
}

func requireProviderError(t testing.TB, answer *embed.Answer, err error) *embed.ProviderError {
	t.Helper()
	require.Error(t, err)
	require.Nil(t, answer)
	var e *embed.ProviderError
	require.ErrorAs(t, err, &e)
	for _, printed := range []string{err.Error(), fmt.Sprintf("%+v", e)} {
		for _, hidden := range []string{secret, "hunter2", "query-secret"} {
			require.NotContains(t, printed, hidden)
		}
	}
	require.NotContains(t, err.Error(), text)
	return e
}

// answering returns a handler that answers with a status, a body and headers.
func answering(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestStatuses(t *testing.T) {
	for _, test := range []struct {
		status                        int
		transient, fatal, maybeBilled bool
	}{
		{301, false, true, false}, {302, false, true, false}, {307, false, true, false}, {308, false, true, false},
		{400, false, false, false}, {401, false, true, false}, {402, false, true, false}, {403, false, true, false}, {404, false, true, false},
		{405, false, false, false}, {408, true, false, false}, {409, true, false, false}, {413, false, false, false}, {422, false, false, false},
		{424, false, false, false}, {429, true, false, false}, {451, false, false, false},
		{500, true, false, true}, {501, true, false, false}, {502, true, false, true}, {503, true, false, false}, {504, true, false, true},
		{520, true, false, true}, {521, true, false, false}, {522, true, false, false}, {524, true, false, true}, {529, true, false, false}, {599, true, false, true},
	} {
		t.Run(strconv.Itoa(test.status), func(t *testing.T) {
			e := embedErr(t, Options{}, answering(test.status, `{"error":{"message":"`+text+`","type":"t","code":"c"}}`, "Location", "http://other.example/"))
			require.Equal(t, test.status, e.Status)
			require.Equal(t, test.transient, e.Transient, "Transient")
			require.Equal(t, test.fatal, e.Fatal, "Fatal")
			require.Equal(t, test.maybeBilled, e.MaybeBilled, "MaybeBilled")
			require.Equal(t, "c", e.Code)
			require.Equal(t, text, e.Detail())
		})
	}
}

func TestErrorBodies(t *testing.T) {
	for _, test := range []struct {
		name, body         string
		code, kind, detail string
		fatal              bool
	}{
		{name: "OpenAI", body: `{"error":{"message":"Rate limit reached","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
			code: "rate_limit_exceeded", kind: "tokens", detail: "Rate limit reached"},
		{name: "OpenAI, empty account", body: `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`,
			code: "insufficient_quota", kind: "insufficient_quota", detail: "You exceeded your current quota", fatal: true},
		{name: "empty account by type alone", body: `{"error":{"message":"Please pay","type":"insufficient_quota","param":null,"code":null}}`,
			kind: "insufficient_quota", detail: "Please pay", fatal: true},
		{name: "account not active", body: `{"error":{"message":"Please pay","type":"billing_not_active","code":"billing_not_active"}}`,
			code: "billing_not_active", kind: "billing_not_active", detail: "Please pay", fatal: true},
		{name: "Azure", body: `{"error":{"code":"429","message":"Requests have exceeded the limit"}}`, code: "429", detail: "Requests have exceeded the limit"},
		{name: "Azure's gateway", body: `{"statusCode":429,"message":"Rate limit is exceeded"}`, code: "429", detail: "Rate limit is exceeded"},
		{name: "Voyage", body: `{"detail":"You have reached the limit"}`, detail: "You have reached the limit"},
		{name: "FastAPI", body: `{"detail":[{"loc":["body","input"],"msg":"field required"}]}`, detail: `{"detail":[{"loc":["body","input"],"msg":"field required"}]}`},
		{name: "TEI", body: `{"error":"Model is overloaded","error_type":"overloaded"}`, kind: "overloaded", detail: "Model is overloaded"},
		{name: "TEI's OpenAI route", body: `{"message":"batch size 33 > maximum allowed batch size 32","code":422,"type":"Validation"}`,
			code: "422", kind: "Validation", detail: "batch size 33 > maximum allowed batch size 32"},
		{name: "vLLM", body: `{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`, code: "400", kind: "BadRequestError", detail: "too long"},
		{name: "Gemini", body: `[{"error":{"code":429,"message":"Resource exhausted","status":"RESOURCE_EXHAUSTED","details":[{}]}}]`,
			code: "429", kind: "RESOURCE_EXHAUSTED", detail: "Resource exhausted"},
		{name: "DashScope", body: `{"code":"Throttling","message":"slow down","request_id":"1"}`, code: "Throttling", detail: "slow down"},
		{name: "HTML", body: "<html><body><h1>429</h1></body></html>\n", detail: "<html><body><h1>429</h1></body></html>"},
		{name: "empty", body: ""},
		{name: "null", body: "null", detail: "null"},
		{name: "a number", body: "7", detail: "7"},
		{name: "an empty array", body: "[]", detail: "[]"},
		{name: "an array of numbers", body: "[7]", detail: "[7]"},
		{name: "error null", body: `{"error":null}`, detail: `{"error":null}`},
		{name: "error an array", body: `{"error":[1]}`, detail: `{"error":[1]}`},
		{name: "wrong kinds", body: `{"error":{"message":{"a":1},"type":[],"code":true}}`, detail: `{"error":{"message":{"a":1},"type":[],"code":true}}`},
		{name: "not UTF-8", body: "\xff\xfe", detail: "\uFFFD"},
		{name: "the key in it", body: `{"error":{"message":"Incorrect API key provided: ` + secret + `.","code":"` + secret + `"}}`, detail: "Incorrect API key provided: [secret]."},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := embedErr(t, Options{}, answering(429, test.body, "x-request-id", "req-1"))
			require.Equal(t, test.code, e.Code)
			require.Equal(t, test.kind, e.Type)
			require.Equal(t, test.detail, e.Detail())
			require.Equal(t, test.fatal, e.Fatal)
			require.Equal(t, !test.fatal, e.Transient)
			require.Equal(t, "req-1", e.RequestID)
			if test.detail != "" && test.detail != test.code {
				require.NotContains(t, e.Error(), test.detail)
			}
		})
	}
	e := embedErr(t, Options{}, answering(500, strings.Repeat("é", 1<<20)))
	require.LessOrEqual(t, len(e.Detail()), maxDetail)
	require.True(t, json.Valid([]byte(strconv.Quote(e.Detail()))))
}

// What local servers are given as a key is no secret, and part of other words.
func TestDummyKeyHidesNothing(t *testing.T) {
	server := httptest.NewServer(answering(404, `{"error":{"message":"try pulling it with ollama","code":"ollama_error"}}`))
	defer server.Close()
	answer, err := New("m", &Options{BaseURL: server.URL, APIKey: "ollama"}).Embed(t.Context(), []string{text})
	e := requireProviderError(t, answer, err)
	require.Equal(t, "ollama_error", e.Code)
	require.Equal(t, "try pulling it with ollama", e.Detail())
}

func FuzzErrorBody(f *testing.F) {
	for _, body := range []string{`{"error":{"message":"m","type":"t","code":1e300}}`, `[{"error":{"code":429,"status":"S"}}]`, `{"detail":"d"}`, "<html>", "", "[[]]", `{"error":"` + secret + `"}`} {
		f.Add(body, 429)
	}
	p := New("m", &Options{BaseURL: "http://localhost", APIKey: secret})
	f.Fuzz(func(t *testing.T, body string, status int) {
		e := p.refusal(&http.Response{StatusCode: status, Header: http.Header{}}, []byte(body))
		require.NotContains(t, e.Error(), secret)
		require.NotContains(t, e.Detail(), secret)
		require.LessOrEqual(t, len(e.Detail()), maxDetail)
		require.False(t, e.Transient && e.Fatal)
	})
}

func TestRequestID(t *testing.T) {
	for _, name := range []string{"x-request-id", "apim-request-id", "x-ms-request-id", "request-id", "cf-ray"} {
		require.Equal(t, "id-7", embedErr(t, Options{}, answering(500, "", name, "id-7")).RequestID)
	}
	require.Equal(t, "first", embedErr(t, Options{}, answering(500, "", "x-request-id", "first", "cf-ray", "second")).RequestID)
	require.Empty(t, embedErr(t, Options{}, answering(500, "", "x-request-id", "echo-"+secret)).RequestID)
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, test := range []struct {
		headers []string
		want    time.Duration
	}{
		{nil, 0},
		{[]string{"Retry-After", "7"}, 7 * time.Second},
		{[]string{"Retry-After", " 1.5 "}, 1500 * time.Millisecond},
		{[]string{"Retry-After", "0"}, 0},
		{[]string{"Retry-After", "-3"}, 0},
		{[]string{"Retry-After", "soon"}, 0},
		{[]string{"Retry-After", "NaN"}, 0},
		{[]string{"Retry-After", "1e300"}, 365 * 24 * time.Hour},
		{[]string{"Retry-After", "1e999"}, 365 * 24 * time.Hour},
		{[]string{"Retry-After", date(time.Minute)}, time.Minute},
		{[]string{"Retry-After", date(-time.Minute)}, 0},
		{[]string{"Retry-After", date(time.Hour), "Date", date(50 * time.Minute)}, 10 * time.Minute},
		{[]string{"Retry-After", now.Add(time.Minute).Format(time.RFC850)}, time.Minute},
		{[]string{"retry-after-ms", "250"}, 250 * time.Millisecond},
		{[]string{"retry-after-ms", "250.5", "Retry-After", "1"}, 250500 * time.Microsecond},
		{[]string{"retry-after-ms", "x", "Retry-After", "1"}, time.Second},
	} {
		h := http.Header{}
		for i := 0; i < len(test.headers); i += 2 {
			h.Set(test.headers[i], test.headers[i+1])
		}
		require.Equal(t, test.want, retryAfter(h, now), "%v", test.headers)
	}
	require.Equal(t, 2*time.Second, embedErr(t, Options{}, answering(429, "", "Retry-After", "2")).RetryAfter)
}

// Answers with status 200 that are none.
func TestBadAnswers(t *testing.T) {
	for _, body := range []string{"", "{", `{"data":[{"embedding":"AACA`, `{"data":[{"embedding":[1,-`, `{"a":nul`, `{"a":"\u12`} {
		e := embedErr(t, Options{}, answering(200, body, "x-request-id", "id"))
		require.True(t, e.Transient && e.MaybeBilled && !e.Fatal, body)
		require.Equal(t, "id", e.RequestID)
		require.ErrorContains(t, e, "cut off or not JSON")
		require.NotErrorIs(t, e, embed.ErrBadAnswer)
	}
	// What is whole and no JSON would be paid for again, and be the same again.
	for _, body := range []string{`{"data":[]} {}`, `{"data":[{"embedding":[NaN]}]}`, `{"data":[]}` + "\x00", `{"a":nulL}`, `{"a":"\u12x4"}`} {
		e := embedErr(t, Options{}, answering(200, body))
		require.True(t, !e.Transient && e.MaybeBilled && !e.Fatal, body)
		require.ErrorIs(t, e, embed.ErrBadAnswer)
		require.ErrorContains(t, e, "not JSON")
	}
	// A page is no answer of an API, and asking again doesn't make it one.
	for _, body := range []string{"<html>down</html>", " \n<!doctype html>", "ok"} {
		e := embedErr(t, Options{}, answering(200, body))
		require.True(t, e.Fatal && !e.Transient && !e.MaybeBilled, body)
		require.ErrorContains(t, e, "BaseURL")
	}
	for _, body := range []string{`{}`, `null`, `{"data":[{"embedding":null}]}`, `{"data":[{"embedding":[1],"index":"0"}]}`, `{"data":[{"embedding":"AAA="}]}`} {
		e := embedErr(t, Options{}, answering(200, body))
		require.True(t, !e.Transient && e.MaybeBilled && !e.Fatal, body)
		require.ErrorIs(t, e, embed.ErrBadAnswer)
	}
	// Gateways that answer 200 with an error.
	e := embedErr(t, Options{}, answering(200, `{"error":{"code":429,"message":"slow down"}}`))
	require.True(t, e.Transient && !e.MaybeBilled)
	require.Equal(t, "slow down", e.Detail())
	e = embedErr(t, Options{}, answering(200, `{"error":{"code":401,"message":"who?"}}`))
	require.True(t, e.Fatal)
	e = embedErr(t, Options{}, answering(200, `{"data":[],"error":{"message":"no embedding data"}}`))
	require.True(t, !e.Transient && !e.Fatal && e.MaybeBilled)
	e = embedErr(t, Options{}, answering(200, `{"error":{"type":"insufficient_quota"}}`))
	require.True(t, e.Fatal)
}

func TestOtherSuccesses(t *testing.T) {
	server := httptest.NewServer(answering(201, `{"data":[{"embedding":[1]}],"error":null}`))
	defer server.Close()
	answer, err := New("m", &Options{BaseURL: server.URL}).Embed(t.Context(), []string{"x"})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{1}}, answer.Vectors)

	// A byte order mark is no part of JSON, but may be ignored (RFC 8259, section 8.1).
	server = httptest.NewServer(answering(200, "\ufeff"+`{"data":[{"embedding":[1]}]}`))
	defer server.Close()
	answer, err = New("m", &Options{BaseURL: server.URL}).Embed(t.Context(), []string{"x"})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{1}}, answer.Vectors)
	require.True(t, embedErr(t, Options{}, answering(204, "")).Transient)
}
