package embedtest

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any body is answered with vectors or with an error, in valid JSON.
func FuzzServerRequest(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","input":["a","b"],"dimensions":3,"encoding_format":"base64","user":"u"}`,
		`{"model":"m","input":"a","encoding_format":"float","task":{"x":[1e3,1.0,null,"y"]}}`,
		`{"model":"m","input":"a","n":1e99999,"o":123456789012345678901234567890,"p":-0.0}`,
		"{\"model\":\"\xff\",\"input\":[\"\xff\xfe\"]}",
		`{"model":null,"input":[1,2]}`,
		`{"model":"m","input":["a"],"dimensions":-1}`,
		`{`, `[]`, ``,
	} {
		f.Add([]byte(body))
	}
	header := http.Header{"Content-Type": {"application/json"}}
	f.Fuzz(func(t *testing.T, body []byte) {
		opts, err := new(Options).filledIn()
		require.NoError(t, err)
		c := newCore(opts)
		asked, problem := parseRequest(header, body)
		r := &Request{Model: asked.model, Texts: asked.texts}
		fault, _ := c.arrive(r)
		if problem == nil {
			problem = c.refuse(r, fault, asked.dimensions)
		}
		if problem != nil {
			require.True(t, json.Valid(problem.json()))
			return
		}
		dimensions := DefaultDimensions
		if asked.dimensions != nil {
			dimensions = *asked.dimensions
		}
		answer := c.answer(r, fault, asked.space, dimensions)
		for i, text := range asked.texts {
			require.True(t, asked.space.IsVectorOf(text, answer.items[i].vector))
		}
		require.True(t, json.Valid(answer.json(true)))
		require.True(t, json.Valid(answer.json(false)))
	})
}
