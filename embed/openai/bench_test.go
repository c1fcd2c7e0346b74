package openai

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// largeAnswer returns an answer of n vectors, as base64 or as numbers.
func largeAnswer(n, dimensions int, asBase64 bool) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString(`{"object":"list","data":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		vector := make([]float32, dimensions)
		for j := range vector {
			vector[j] = float32(r.NormFloat64() / math.Sqrt(float64(dimensions)))
		}
		fmt.Fprintf(&b, `{"object":"embedding","index":%d,"embedding":`, i)
		if asBase64 {
			b.WriteString(`"` + base64Of(vector...) + `"}`)
			continue
		}
		numbers, _ := json.Marshal(vector)
		b.Write(numbers)
		b.WriteByte('}')
	}
	b.WriteString(`],"model":"text-embedding-3-small","usage":{"prompt_tokens":1,"total_tokens":1}}`)
	return b.Bytes()
}

func BenchmarkDecode(b *testing.B) {
	for _, form := range []string{"base64", "numbers"} {
		body := largeAnswer(2048, 1536, form == "base64")
		b.Run(form+"/here", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := decodeAnswer(body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(form+"/encodingjson", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := decodeStructs(body, form == "base64"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// decodeStructs is how one would write it with encoding/json, if the form of the
// vectors were known.
func decodeStructs(body []byte, asBase64 bool) error {
	if !asBase64 {
		var answer struct {
			Data []struct {
				Index     *int
				Embedding []float32
			}
			Model string
		}
		return json.Unmarshal(body, &answer)
	}
	var answer struct {
		Data []struct {
			Index     *int
			Embedding []byte // encoding/json reads base64 into bytes
		}
		Model string
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	for _, item := range answer.Data {
		vector := make([]float32, len(item.Embedding)/4)
		for i := range vector {
			vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(item.Embedding[4*i:]))
		}
	}
	return nil
}
