package embedtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/embedonce/embedonce/embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is what a client sees of an answer, by whichever way it came.
type seen struct {
	vectors [][]float32
	index   []int // noIndex is none
	model   string
	usage   int // noUsage is none

	// Of an answer without vectors:
	status             int
	code, typ, message string
	header             http.Header // HTTP only
}

// throughProvider makes one request to a new Provider.
func throughProvider(t *testing.T, opts Options, texts ...string) seen {
	t.Helper()
	p := NewProvider(&opts)
	answer, err := p.Embed(t.Context(), texts)
	checkLog(t, p.Log, texts)
	if err != nil {
		var refused *embed.ProviderError
		require.ErrorAs(t, err, &refused)
		require.NoError(t, refused.Err)
		require.Nil(t, answer)
		require.Equal(t, refused.Status, p.History()[0].Status)
		return seen{status: refused.Status, code: refused.Code, typ: refused.Type, message: refused.Detail()}
	}
	require.Equal(t, http.StatusOK, p.History()[0].Status)
	s := seen{vectors: answer.Vectors, model: answer.Model, usage: answer.Tokens, status: http.StatusOK}
	if s.usage < 0 {
		s.usage = noUsage
	}
	for i := range answer.Vectors {
		switch {
		case answer.Index == nil || answer.Index[i] == -1:
			s.index = append(s.index, noIndex)
		default:
			s.index = append(s.index, answer.Index[i])
		}
	}
	return s
}

// throughServer makes one request to a new Server, for base64 or, with fields
// of its own, for whatever they say.
func throughServer(t *testing.T, opts Options, fields map[string]any, texts ...string) seen {
	t.Helper()
	s := startServer(t, &opts)
	response, err := s.post(t.Context(), requestBody(t, fields, texts...))
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	checkLog(t, s.Log, texts)
	require.Equal(t, response.StatusCode, s.History()[0].Status)
	return parseSeen(t, response, body)
}

// checkLog checks what holds for one request, whatever became of it.
func checkLog(t *testing.T, l *Log, texts []string) {
	t.Helper()
	require.Equal(t, 1, l.Requests())
	require.Equal(t, len(texts), l.Texts())
	require.Equal(t, 1, l.MaxConcurrent())
	log := l.History()
	require.Len(t, log, 1)
	require.Equal(t, 1, log[0].Number)
	require.Equal(t, len(strings.Join(texts, "")), log[0].Bytes)
	require.EqualValues(t, log[0].BilledTokens, l.BilledTokens())
	require.False(t, log[0].End.Before(log[0].Start))
}

// testServer is a Server with a client whose connections end with the test.
type testServer struct {
	*Server
	client *http.Client
}

func startServer(t *testing.T, opts *Options) *testServer {
	t.Helper()
	s := NewServer(opts)
	transport := &http.Transport{}
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
	})
	return &testServer{s, &http.Client{Transport: transport}}
}

func (s *testServer) post(ctx context.Context, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL+"/embeddings", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return s.client.Do(request)
}

func requestBody(t *testing.T, fields map[string]any, texts ...string) []byte {
	t.Helper()
	all := map[string]any{"model": DefaultModel, "input": texts, "encoding_format": "base64"}
	for name, value := range fields {
		all[name] = value
	}
	body, err := json.Marshal(all)
	require.NoError(t, err)
	return body
}

// parseSeen reads an answer strictly, with the standard library's own means.
func parseSeen(t *testing.T, response *http.Response, body []byte) seen {
	t.Helper()
	require.Equal(t, "application/json", response.Header.Get("Content-Type"))
	require.NotEmpty(t, response.Header.Get("X-Request-Id"))
	s := seen{status: response.StatusCode, header: response.Header}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if response.StatusCode != http.StatusOK {
		var refused struct {
			Error struct{ Message, Type, Param, Code *string }
		}
		require.NoError(t, decoder.Decode(&refused))
		orEmpty := func(p *string) string {
			if p == nil {
				return ""
			}
			require.NotEmpty(t, *p)
			return *p
		}
		s.code, s.typ, s.message = orEmpty(refused.Error.Code), orEmpty(refused.Error.Type), *refused.Error.Message
		return s
	}
	var answer struct {
		Object string
		Data   []struct {
			Object    string
			Index     *int
			Embedding any
		}
		Model string
		Usage *struct {
			PromptTokens int `json:"prompt_tokens"`
			TotalTokens  int `json:"total_tokens"`
		}
	}
	require.NoError(t, decoder.Decode(&answer), string(body))
	require.Equal(t, "list", answer.Object)
	s.model, s.usage = answer.Model, noUsage
	if answer.Usage != nil {
		s.usage = answer.Usage.TotalTokens
		require.Equal(t, answer.Usage.PromptTokens, answer.Usage.TotalTokens)
	}
	for _, it := range answer.Data {
		require.Equal(t, "embedding", it.Object)
		index := noIndex
		if it.Index != nil {
			index = *it.Index
		}
		s.index = append(s.index, index)
		vector := []float32{}
		switch embedding := it.Embedding.(type) {
		case string:
			raw, err := base64.StdEncoding.DecodeString(embedding)
			require.NoError(t, err)
			for len(raw) > 0 {
				vector = append(vector, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
				raw = raw[4:]
			}
		case []any:
			for _, number := range embedding {
				vector = append(vector, float32(number.(float64)))
			}
		}
		s.vectors = append(s.vectors, vector)
	}
	return s
}

// providerError is what err must be.
func providerError(t *testing.T, err error) *embed.ProviderError {
	t.Helper()
	var refused *embed.ProviderError
	require.True(t, errors.As(err, &refused), "%v", err)
	return refused
}
