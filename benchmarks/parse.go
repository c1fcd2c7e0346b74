package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unsafe"

	simd "github.com/segmentio/asm/base64"

	"github.com/embedonce/embedonce/embed/openai"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// parseRun is the scenario parse for one answer.
type parseRun struct {
	*bench.Run
	dims, vectors int
	asBase64      bool
	body          []byte
	each          time.Duration
	table         *bench.Table
}

// parsing is the scenario parse: it measures how an answer of a provider becomes
// vectors. The answer is in memory; what comes before the decoding, a request through
// net/http without a network and the reading of the body, is part of each side and is
// measured alone too.
func parsing(ctx context.Context, r *bench.Run) error {
	for _, vectors := range bench.Pick(r.Quick, []int{16}, []int{16, 256, 2048}) {
		for _, asBase64 := range []bool{true, false} {
			p := &parseRun{
				Run: r, dims: 1536, vectors: vectors, asBase64: asBase64,
				each:  bench.Pick(r.Quick, 20*time.Millisecond, time.Second),
				table: r.NewTable(),
			}
			p.body = p.answer()
			for repetition := range r.Runs {
				r.Logf("%d vectors, %s, run %d of %d", vectors, p.form(), repetition+1, r.Runs)
				if err := p.repeat(ctx, repetition); err != nil {
					return err
				}
			}
			if err := p.table.Emit(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parseRun) form() string {
	if p.asBase64 {
		return "base64"
	}
	return "numbers"
}

// answer is as OpenAI's API writes it, but without white space between numbers.
func (p *parseRun) answer() []byte {
	random := rand.New(rand.NewPCG(p.Seed, uint64(p.vectors)))
	body := []byte(`{"object":"list","data":[`)
	raw := make([]byte, 0, 4*p.dims)
	for i := range p.vectors {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, `{"object":"embedding","index":`...)
		body = strconv.AppendInt(body, int64(i), 10)
		body = append(body, `,"embedding":`...)
		raw = raw[:0]
		for k := range p.dims {
			x := float32(random.NormFloat64() / math.Sqrt(float64(p.dims)))
			if p.asBase64 {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
				continue
			}
			body = append(body, "[,"[min(k, 1)])
			body = strconv.AppendFloat(body, float64(x), 'g', -1, 32)
		}
		if p.asBase64 {
			body = append(base64.StdEncoding.AppendEncode(append(body, '"'), raw), `"}`...)
		} else {
			body = append(body, "]}"...)
		}
	}
	return append(body, `],"model":"text-embedding-3-small","usage":{"prompt_tokens":1,"total_tokens":1}}`...)
}

func (p *parseRun) repeat(ctx context.Context, repetition int) error {
	client := &http.Client{Transport: canned(p.body)}
	provider := p.provider(client)
	texts := slices.Repeat([]string{"x"}, p.vectors) // what is sent costs next to nothing
	throughput := make(map[string]float64)
	side := func(of string, decode func() (vectors int, err error)) bench.Side {
		return bench.Side{Case: of, Measure: func(ctx context.Context) (float64, error) {
			pass, err := bench.Loop(ctx, 1, p.each, func(int, int) error {
				n, err := decode()
				if err == nil && n != p.vectors {
					err = fmt.Errorf("%d vectors, not %d", n, p.vectors)
				}
				return err
			})
			throughput[of] = float64(len(p.body)) / pass.PerText(1) // bytes in a microsecond are MB in a second
			return pass.PerText(p.vectors), err
		}}
	}
	reading := func(decode func(body []byte) (int, error)) func() (int, error) {
		return func() (int, error) {
			body, err := p.read(ctx, client)
			if err != nil {
				return 0, err
			}
			return decode(body)
		}
	}
	sides := []bench.Side{
		side(bench.CaseOurs, func() (int, error) {
			answer, err := provider.Embed(ctx, texts)
			if err != nil {
				return 0, err
			}
			return len(answer.Vectors), nil
		}),
		side(bench.CaseFloor, reading(func(body []byte) (int, error) {
			matrix, err := p.byHand(body)
			return len(matrix) / p.dims, err
		})),
		side("encoding/json", reading(func(body []byte) (int, error) {
			vectors, err := p.standard(body)
			return len(vectors), err
		})),
		side("read alone", reading(func([]byte) (int, error) { return p.vectors, nil })),
	}
	cell := bench.Result{Goroutines: 1, Texts: p.vectors, Dims: p.dims, Metric: p.form(), Unit: "µs/text"}
	if err := p.table.Beside(ctx, repetition, cell, sides...); err != nil {
		return err
	}
	cell.Unit = "MB/s"
	for _, s := range sides {
		p.table.Add(cell, s.Case, throughput[s.Case])
	}
	return nil
}

func (p *parseRun) provider(client *http.Client) *openai.Provider {
	return openai.New("text-embedding-3-small", &openai.Options{
		BaseURL: "http://127.0.0.1/v1", APIKey: "none", Dimensions: &p.dims, HTTPClient: client,
	})
}

// read makes a request and reads the answer's body into memory of its own.
func (p *parseRun) read(ctx context.Context, client *http.Client) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/v1/embeddings", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body := make([]byte, response.ContentLength)
	_, err = io.ReadFull(response.Body, body)
	return body, err
}

// byHand decodes an answer of this shape alone, into one matrix, with the fastest
// library for base64 and the standard library for numbers.
func (p *parseRun) byHand(body []byte) (matrix []float32, err error) {
	mark, end := []byte(`"embedding":[`), byte(']')
	if p.asBase64 {
		mark, end = []byte(`"embedding":"`), '"'
	}
	matrix = make([]float32, p.vectors*p.dims)
	raw := make([]byte, 4*p.dims+2)
	for i := range p.vectors {
		from := bytes.Index(body, mark) + len(mark)
		to := from + bytes.IndexByte(body[from:], end)
		row, text := matrix[i*p.dims:(i+1)*p.dims], body[from:to]
		body = body[to:]
		if p.asBase64 {
			if _, err := simd.StdEncoding.Decode(raw, text); err != nil {
				return nil, err
			}
			for k := range row {
				row[k] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*k:]))
			}
			continue
		}
		for k := range row {
			number := text
			if comma := bytes.IndexByte(text, ','); comma >= 0 {
				number, text = text[:comma], text[comma+1:]
			}
			x, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(number), len(number)), 32)
			if err != nil {
				return nil, err
			}
			row[k] = float32(x)
		}
	}
	return matrix, nil
}

// standard is how one would write it with encoding/json, knowing the form.
func (p *parseRun) standard(body []byte) (vectors [][]float32, err error) {
	if !p.asBase64 {
		var answer struct {
			Data []struct{ Embedding []float32 }
		}
		err = json.Unmarshal(body, &answer)
		for _, item := range answer.Data {
			vectors = append(vectors, item.Embedding)
		}
		return vectors, err
	}
	var answer struct {
		Data []struct{ Embedding []byte } // encoding/json reads base64 into bytes
	}
	err = json.Unmarshal(body, &answer)
	for _, item := range answer.Data {
		vector := make([]float32, len(item.Embedding)/4)
		for k := range vector {
			vector[k] = math.Float32frombits(binary.LittleEndian.Uint32(item.Embedding[4*k:]))
		}
		vectors = append(vectors, vector)
	}
	return vectors, err
}

// canned answers each request with this body, without a network.
type canned []byte

func (c canned) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		_, err := io.Copy(io.Discard, request.Body)
		request.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(bytes.NewReader(c)), ContentLength: int64(len(c)), Request: request,
	}, nil
}
