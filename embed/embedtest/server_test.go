package embedtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/embedonce/embedonce/embed"
)

func TestServerBreaksOff(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  Fault
		header bool // whether the client gets an answer's beginning
		cause  error
		billed int64
	}{
		{"reset", Fault{Reset: true}, false, syscall.ECONNRESET, 0},
		{"reset, billed", Fault{Reset: true, Billed: true}, false, syscall.ECONNRESET, 1},
		{"cut", Fault{Cut: true}, true, io.ErrUnexpectedEOF, 1},
		{"error cut", Fault{Cut: true, Body: []byte("no html")}, true, io.ErrUnexpectedEOF, 0},
		{"cut slowly", Fault{Cut: true, Slow: time.Millisecond}, true, io.ErrUnexpectedEOF, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startServer(t, &Options{Faults: []Fault{test.fault, {}}})
			response, err := s.post(t.Context(), requestBody(t, nil, "text"))
			if test.header {
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, response.StatusCode)
				var body []byte
				body, err = io.ReadAll(response.Body)
				response.Body.Close()
				require.EqualValues(t, response.ContentLength/2, len(body))
			}
			require.ErrorIs(t, err, test.cause)

			response, err = s.post(t.Context(), requestBody(t, nil, "text"))
			require.NoError(t, err)
			response.Body.Close()
			require.Zero(t, s.History()[0].Status)
			require.Equal(t, test.billed+1, s.BilledTokens())
		})
	}
}

func TestServerHangsUntilTheClientGoes(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  Fault
		header bool // whether the client gets an answer's beginning
		billed int64
	}{
		{"before", Fault{Hang: true}, false, 0},
		{"within", Fault{Hang: true, Cut: true}, true, 1},
		{"latency", Fault{Delay: time.Hour}, false, 0},
		{"slow", Fault{Slow: time.Hour}, true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			arrived := make(chan struct{})
			s := startServer(t, &Options{FaultFunc: func(int, Request) Fault {
				close(arrived)
				return test.fault
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !test.header {
				go func() {
					<-arrived
					cancel()
				}()
			}
			response, err := s.post(ctx, requestBody(t, nil, "text"))
			require.Equal(t, test.header, err == nil)
			if err == nil {
				cancel()
				_, err = io.ReadAll(response.Body)
				response.Body.Close()
			}
			require.ErrorIs(t, err, context.Canceled)
			s.Close() // waits for the request to end
			log := s.History()
			require.Len(t, log, 1)
			require.NotZero(t, log[0].End)
			require.Zero(t, log[0].Status)
			require.Equal(t, test.billed, s.BilledTokens())
		})
	}
}

func TestServerCloseEndsWhatWaits(t *testing.T) {
	for _, fault := range []Fault{{Hang: true}, {Hang: true, Cut: true}, {Delay: time.Hour}, {Slow: time.Hour}} {
		arrived := make(chan struct{})
		s := startServer(t, &Options{FaultFunc: func(int, Request) Fault {
			close(arrived)
			return fault
		}})
		go func() {
			<-arrived
			s.Close()
		}()
		response, err := s.post(t.Context(), requestBody(t, nil, "text"))
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		require.Error(t, err)
		s.Close()
	}
}

func TestServerSlowBodyComesInPieces(t *testing.T) {
	const slow = 80 * time.Millisecond
	s := startServer(t, &Options{Dimensions: 3000, Faults: []Fault{{Slow: slow}}})
	start := time.Now()
	response, err := s.post(t.Context(), requestBody(t, nil, "text"))
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), slow)
	require.True(t, Space{Model: DefaultModel}.IsVectorOf("text", parseSeen(t, response, body).vectors[0]))
	log := s.History()
	require.GreaterOrEqual(t, log[0].End.Sub(log[0].Start), slow)
}

func TestServerLatency(t *testing.T) {
	s := startServer(t, &Options{Latency: 10 * time.Millisecond, LatencyPerText: 10 * time.Millisecond})
	response, err := s.post(t.Context(), requestBody(t, nil, "a", "b"))
	require.NoError(t, err)
	response.Body.Close()
	log := s.History()
	require.GreaterOrEqual(t, log[0].End.Sub(log[0].Start), 30*time.Millisecond)
}

func TestServerMalformedAndRawBodies(t *testing.T) {
	for _, test := range []struct {
		fault  Fault
		status int
		billed int64
		want   string // "" is: not JSON
	}{
		{Fault{Malformed: true}, 200, 1, ""},
		{Fault{Body: []byte("<html>no</html>")}, 200, 0, "<html>no</html>"},
		{Fault{Body: []byte(`{"error":"busy"}`), Status: 503, Billed: true}, 503, 1, `{"error":"busy"}`},
		{Fault{Body: []byte{}}, 200, 0, ""},
		{Fault{Floats: true, Vector: VectorNaN}, 200, 1, ""},
	} {
		s := startServer(t, &Options{Faults: []Fault{test.fault}})
		response, err := s.post(t.Context(), requestBody(t, nil, "text"))
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, test.status, response.StatusCode)
		require.Equal(t, test.billed, s.BilledTokens())
		require.Equal(t, test.status, s.History()[0].Status)
		if test.want != "" {
			require.Equal(t, test.want, string(body))
			continue
		}
		require.False(t, json.Valid(body))
		if test.fault.Vector == VectorNaN {
			require.Contains(t, string(body), "NaN\n")
		}
	}
}

func TestServerAddsHeader(t *testing.T) {
	s := throughServer(t, Options{Faults: []Fault{{Status: 429, Header: http.Header{"retry-after-ms": {"12"}, "Retry-After": {"soon"}}, RetryAfter: time.Second}}}, nil, "text")
	require.Equal(t, "12", s.header.Get("Retry-After-Ms"))
	require.Equal(t, "soon", s.header.Get("Retry-After"))
}

func TestServerKeys(t *testing.T) {
	for _, test := range []struct {
		name, value string
		status      int
	}{
		{"Authorization", "Bearer sesame", 200},
		{"api-key", "sesame", 200},
		{"Authorization", "Bearer wrong", 401},
		{"Authorization", "sesame", 401},
		{"api-key", "wrong", 401},
		{"X-Nothing", "", 401},
	} {
		s := startServer(t, &Options{APIKey: "sesame"})
		request, err := http.NewRequest(http.MethodPost, s.BaseURL+"/embeddings", bytes.NewReader(requestBody(t, nil, "text")))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json; charset=utf-8")
		request.Header.Set(test.name, test.value)
		response, err := s.client.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		seen := parseSeen(t, response, body)
		require.Equal(t, test.status, seen.status)
		if test.status == 401 {
			require.Equal(t, "invalid_api_key", seen.code)
			require.NotContains(t, string(body), "sesame")
			require.Zero(t, s.BilledTokens())
		}
		log := s.History()[0]
		require.Equal(t, []string{test.value}, log.Header.Values(test.name))
		require.Equal(t, "/v1/embeddings", log.URL.Path)
		require.Equal(t, requestBody(t, nil, "text"), log.Body)
	}
}

func TestServerRefusesWhatItCantRead(t *testing.T) {
	for _, test := range []struct {
		body, want string
	}{
		{`{`, "could not parse"},
		{`[]`, "could not parse"},
		{``, "could not parse"},
		{`{"input":["a"]}`, "model"},
		{`{"model":7,"input":["a"]}`, "'$.model' is invalid"},
		{`{"model":"m"}`, "'$.input' is invalid"},
		{`{"model":"m","input":[]}`, "'$.input' is invalid"},
		{`{"model":"m","input":""}`, "'$.input' is invalid"},
		{`{"model":"m","input":[1,2]}`, "'$.input' is invalid"},
		{`{"model":"m","input":["a"],"dimensions":"8"}`, "'$.dimensions' is invalid"},
		{`{"model":"m","input":["a"],"dimensions":1.5}`, "'$.dimensions' is invalid"},
		{`{"model":"m","input":["a"],"encoding_format":"int8"}`, "'$.encoding_format' is invalid"},
	} {
		s := startServer(t, nil)
		response, err := s.post(t.Context(), []byte(test.body))
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		seen := parseSeen(t, response, body)
		require.Equal(t, 400, seen.status, test.body)
		require.Contains(t, seen.message, test.want)
		require.Zero(t, s.BilledTokens())
		require.Equal(t, 400, s.History()[0].Status)
	}
	s := startServer(t, nil)
	response, err := s.client.Post(s.BaseURL+"/embeddings", "text/plain", strings.NewReader(`{"model":"m","input":["a"]}`))
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, 400, response.StatusCode)
}

func TestServerPathsAndMethods(t *testing.T) {
	s := startServer(t, nil)
	azure := s.URL + "/openai/deployments/mine/embeddings?api-version=2024-10-21"
	response, err := s.client.Post(azure, "application/json", bytes.NewReader(requestBody(t, nil, "text")))
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, 200, response.StatusCode)
	require.Equal(t, "2024-10-21", s.History()[0].URL.Query().Get("api-version"))

	for path, want := range map[string]int{"/v1/embeddings": 405, "/v1/models": 404, "/": 404} {
		response, err := s.client.Get(s.URL + path)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, want, response.StatusCode)
		require.Contains(t, string(body), `"error": {`)
	}
	require.Equal(t, 1, s.Requests())
}

// One text instead of a list, numbers instead of base64 unless it is asked for,
// and invalid UTF-8.
func TestServerReadsWhatOpenAIReads(t *testing.T) {
	s := throughServer(t, Options{}, map[string]any{"input": "text"}, "text")
	require.True(t, IsVectorOf("text", s.vectors[0]))

	for _, format := range []any{nil, "float"} {
		server := startServer(t, nil)
		response, err := server.post(t.Context(), requestBody(t, map[string]any{"encoding_format": format}, "text"))
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		require.Contains(t, string(body), `"embedding": [`)
		require.True(t, IsVectorOf("text", parseSeen(t, response, body).vectors[0]))
	}

	server := startServer(t, nil)
	response, err := server.post(t.Context(), []byte("{\"model\":\""+DefaultModel+"\",\"input\":\"a\xff\xfeb\"}"))
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	response.Body.Close()
	require.True(t, IsVectorOf("a\xff\xfeb", parseSeen(t, response, body).vectors[0]))
}

// The log is complete when the client has its answer.
func TestServerLogIsCompleteBeforeTheAnswer(t *testing.T) {
	s := startServer(t, &Options{Limits: embed.Limits{Items: 1}})
	for i := range 200 {
		texts := []string{"one two"}
		if i%2 == 1 {
			texts = append(texts, "too many")
		}
		response, err := s.post(t.Context(), requestBody(t, nil, texts...))
		require.NoError(t, err)
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		log := s.History()
		require.Len(t, log, i+1)
		require.Equal(t, []int{200, 400}[i%2], log[i].Status)
		require.NotZero(t, log[i].End)
		require.EqualValues(t, 2*(i/2+1), s.BilledTokens())
	}
	require.Equal(t, 1, s.MaxConcurrent())
}

func TestServerConcurrently(t *testing.T) {
	const clients = 6
	var all sync.WaitGroup
	all.Add(clients)
	s := startServer(t, &Options{FaultFunc: func(number int, _ Request) Fault {
		if number <= clients {
			all.Done()
			all.Wait() // until as many have arrived
		}
		return Fault{}
	}})
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for range 10 {
				response, err := s.post(context.Background(), requestBody(t, nil, "text"))
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
				s.History()
			}
		})
	}
	running.Wait()
	require.Equal(t, clients, s.MaxConcurrent())
	require.Equal(t, 10*clients, s.Requests())
	require.EqualValues(t, 10*clients, s.BilledTokens())
	require.Equal(t, map[string]int{"text": 10 * clients}, s.TimesBilled())
}
