package embedtest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"mime"
	"net/http"
	"strconv"
)

// request is what the body of an embeddings request asks for.
type request struct {
	model      string
	texts      []string
	dimensions *int
	floats     bool
	space      Space
}

// parseRequest reads the body of an embeddings request. What it can't read it
// says in the refusal; the rest of the request is there all the same.
func parseRequest(header http.Header, body []byte) (request, *refusal) {
	var asked request
	invalid := func(param, message string) *refusal {
		return &refusal{http.StatusBadRequest, message, "invalid_request_error", param, ""}
	}
	if kind, _, _ := mime.ParseMediaType(header.Get("Content-Type")); kind != "application/json" {
		return asked, invalid("", "Unsupported content type: this API method only accepts 'application/json' requests.")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return asked, invalid("", "We could not parse the JSON body of your request.")
	}

	var problem *refusal
	var encoding string
	params := make(map[string]any)
	for name, value := range fields {
		if string(value) == "null" {
			continue
		}
		var err error
		switch name {
		case "model":
			err = json.Unmarshal(value, &asked.model)
		case "input":
			asked.texts, err = parseInput(value)
		case "dimensions", "output_dimension":
			err = json.Unmarshal(value, &asked.dimensions)
		case "encoding_format":
			err = json.Unmarshal(value, &encoding)
		case "user":
		default:
			params[name] = value
		}
		if err != nil {
			problem = invalid(name, "'$."+name+"' is invalid: it has another type than expected.")
		}
	}
	asked.space = Space{Model: asked.model, Params: params}
	switch {
	case problem != nil:
	case asked.model == "":
		problem = invalid("", "you must provide a model parameter")
	case encoding != "" && encoding != "float" && encoding != "base64":
		problem = invalid("encoding_format", "'$.encoding_format' is invalid: must be 'float' or 'base64'.")
	}
	asked.floats = encoding != "base64"
	return asked, problem
}

// parseInput reads one text or a list of them. Lists of token numbers, which
// OpenAI takes too, are an error: there is no text to make a vector from.
func parseInput(value json.RawMessage) ([]string, error) {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return []string{text}, nil
	}
	var texts []string
	err := json.Unmarshal(value, &texts)
	return texts, err
}

// json spells the error as OpenAI does.
func (r *refusal) json() []byte {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	type parts struct {
		Message string `json:"message"`
		Type    any    `json:"type"`
		Param   any    `json:"param"`
		Code    any    `json:"code"`
	}
	body, err := json.MarshalIndent(map[string]parts{
		"error": {r.message, orNull(r.typ), orNull(r.param), orNull(r.code)},
	}, "", "  ")
	if err != nil {
		panic(err) // strings and nils: can't be
	}
	return append(body, '\n')
}

// json spells the answer as OpenAI does, with the vectors as lists of numbers or
// as base64 of little-endian float32.
func (a answer) json(floats bool) []byte {
	size := 256
	for _, it := range a.items {
		size += 128 + 6*len(it.vector)
		if floats {
			size += 24 * len(it.vector)
		}
	}
	out := make([]byte, 0, size)
	out = append(out, "{\n  \"object\": \"list\",\n  \"data\": ["...)
	var raw []byte
	for i, it := range a.items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, "\n    {\n      \"object\": \"embedding\",\n"...)
		if it.index != noIndex {
			out = append(out, "      \"index\": "...)
			out = strconv.AppendInt(out, int64(it.index), 10)
			out = append(out, ",\n"...)
		}
		out = append(out, "      \"embedding\": "...)
		if floats {
			out = appendFloats(out, it.vector)
		} else {
			raw = raw[:0]
			for _, x := range it.vector {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			out = append(out, '"')
			out = base64.StdEncoding.AppendEncode(out, raw)
			out = append(out, '"')
		}
		out = append(out, "\n    }"...)
	}
	out = append(out, "\n  ],\n  \"model\": "...)
	model, err := json.Marshal(a.model)
	if err != nil {
		panic(err) // a string: can't be
	}
	out = append(out, model...)
	if a.usage != noUsage {
		usage := strconv.Itoa(a.usage)
		out = append(out, ",\n  \"usage\": {\n    \"prompt_tokens\": "+usage+",\n    \"total_tokens\": "+usage+"\n  }"...)
	}
	return append(out, "\n}\n"...)
}

// appendFloats spells v as a list of JSON numbers, taking turns at the spellings
// that providers use. Each has the digits of the float64, so that it doesn't
// matter whether a decoder goes by way of float64.
func appendFloats(out []byte, v []float32) []byte {
	out = append(out, '[')
	for i, x := range v {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, "\n        "...)
		number := float64(x)
		switch {
		case math.IsNaN(number):
			out = append(out, "NaN"...)
		case math.IsInf(number, 0):
			out = append(out, "Infinity"...)
		case i%4 == 0:
			out = strconv.AppendFloat(out, number, 'f', -1, 64)
		case i%4 == 1:
			out = strconv.AppendFloat(out, number, 'e', -1, 64)
		case i%4 == 2:
			out = strconv.AppendFloat(out, number, 'E', -1, 64)
		default:
			out = strconv.AppendFloat(out, number, 'f', 24, 64)
		}
	}
	if len(v) > 0 {
		out = append(out, "\n      "...)
	}
	return append(out, ']')
}
