package openai

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/embedonce/embedonce/embed"
)

var (
	errNoData      = fmt.Errorf("%w: it has no array \"data\"", embed.ErrBadAnswer)
	errNoEmbedding = fmt.Errorf("%w: an item has no embedding", embed.ErrBadAnswer)
	errBadItem     = fmt.Errorf("%w: an item of \"data\" is not an object", embed.ErrBadAnswer)
	errBadVector   = fmt.Errorf("%w: an embedding is neither base64 nor an array of numbers", embed.ErrBadAnswer)
	errBadNumber   = fmt.Errorf("%w: an embedding has a number that is no float32", embed.ErrBadAnswer)
	errBadBase64   = fmt.Errorf("%w: an embedding is not base64 of whole float32 values", embed.ErrBadAnswer)
	errBadIndex    = fmt.Errorf("%w: an index is not an integer of 0 or more", embed.ErrBadAnswer)
)

// decoder reads one answer in one pass. What is not JSON ends it at once; a value
// of a wrong kind is kept in bad, because a later member of the same name
// replaces it, as in encoding/json.
type decoder struct {
	scanner

	floats  []float32 // all vectors, one behind the other
	ends    []int     // where each ends in floats
	index   []int
	indexed bool // some item has an index
	bad     error
	model   string
	prompt  int // usage.prompt_tokens, or -1
	total   int // usage.total_tokens, or -1
	failed  bool
	scratch []byte
}

// decodeAnswer reads the body of an answer. The vectors share one array. An error
// is a *syntaxError, or wraps embed.ErrBadAnswer where the body is JSON of another
// shape. failed says that the body has a member "error", as some gateways answer
// with status 200.
func decodeAnswer(body []byte) (answer *embed.Answer, failed bool, err error) {
	d := decoder{scanner: scanner{b: body}, bad: errNoData, prompt: -1, total: -1}
	d.space()
	if d.peek() == '{' {
		err = d.object(1, d.member)
	} else {
		err = d.skip(1)
	}
	if err != nil {
		return nil, false, err
	}
	if d.space(); d.i < len(d.b) {
		return nil, false, d.syntax()
	}
	if d.bad != nil {
		return nil, d.failed, d.bad
	}
	answer = &embed.Answer{Vectors: make([][]float32, len(d.ends)), Model: d.model, Tokens: d.prompt}
	start := 0
	for i, end := range d.ends {
		answer.Vectors[i] = d.floats[start:end:end]
		start = end
	}
	if d.indexed {
		answer.Index = d.index
	}
	if d.prompt < 0 {
		answer.Tokens = d.total // Voyage gives this one alone
	}
	return answer, d.failed, nil
}

// member reads one member of the answer.
func (d *decoder) member(key []byte) error {
	switch string(key) {
	case "data":
		d.floats, d.ends, d.index, d.indexed = d.floats[:0], d.ends[:0], d.index[:0], false
		d.bad = errNoData
		if d.peek() != '[' {
			return d.skip(2)
		}
		d.bad = nil
		return d.array(2, d.item)
	case "model":
		d.model = ""
		if d.peek() != '"' {
			return d.skip(2)
		}
		raw, _, err := d.str()
		d.model = string(unquote(raw))
		return err
	case "usage":
		d.prompt, d.total = -1, -1
		if d.peek() != '{' {
			return d.skip(2)
		}
		return d.object(2, func(key []byte) (err error) {
			switch string(key) {
			case "prompt_tokens":
				d.prompt, _, err = d.natural(3)
			case "total_tokens":
				d.total, _, err = d.natural(3)
			default:
				err = d.skip(3)
			}
			return err
		})
	case "error":
		d.failed = d.peek() != 'n'
	}
	return d.skip(2)
}

// item reads one element of data.
func (d *decoder) item() error {
	begin, index := len(d.floats), -1
	bad, badIndex := errNoEmbedding, error(nil)
	from := d.i
	var err error
	if d.peek() == '{' {
		err = d.object(3, func(key []byte) (err error) {
			switch string(key) {
			case "embedding":
				d.floats = d.floats[:begin]
				bad, err = d.vector()
			case "index":
				var null bool
				index, null, err = d.natural(4)
				badIndex = nil
				if index < 0 && !null {
					// An index that can't be read must not count as absent: the
					// vectors would be bound by arrival, maybe to other texts.
					badIndex = errBadIndex
				}
			default:
				err = d.skip(4)
			}
			return err
		})
	} else {
		bad = errBadItem
		err = d.skip(3)
	}
	if err != nil {
		return err
	}
	if d.bad == nil {
		if d.bad = bad; bad == nil {
			d.bad = badIndex
		}
	}
	if d.bad != nil {
		// Nothing of data is of use any more: a hostile answer must not fill memory.
		d.floats, d.ends, d.index = nil, nil, nil
		return nil
	}
	d.ends = append(d.ends, len(d.floats))
	d.index = append(d.index, index)
	d.indexed = d.indexed || index >= 0
	if len(d.ends) == 1 {
		// The others will be like the first. The guess is bounded by the body: an
		// item is longer than its number of floats.
		n := (len(d.b) - d.i) / (d.i - from)
		d.floats = slices.Grow(d.floats, n*len(d.floats))
		d.ends, d.index = slices.Grow(d.ends, n), slices.Grow(d.index, n)
	}
	return nil
}

// natural reads a value at the given depth: n is -1 for anything but an integer
// of 0 or more that an int holds; null says that it was null.
func (d *decoder) natural(depth int) (n int, null bool, err error) {
	start, c := d.i, d.peek()
	if err := d.skip(depth); err != nil {
		return -1, false, err
	}
	n, err = strconv.Atoi(string(d.b[start:d.i]))
	if err != nil || n < 0 {
		n = -1
	}
	return n, c == 'n', nil
}
