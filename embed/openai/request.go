package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/embedonce/embedonce/embed"
)

// body returns what stands before and after the texts in each request.
func (b *builder) body() (head, tail []byte) {
	head = []byte("{")
	if b.model != "" {
		head = append(appendString(append(head, `"model":`...), b.model), ',')
	}
	head = append(head, `"input":[`...)
	field := func(name string) {
		tail = append(appendString(append(tail, ','), name), ':')
	}
	tail = []byte("]")
	if b.o.EncodingFormat != "none" {
		field("encoding_format")
		tail = appendString(tail, b.o.EncodingFormat)
	}
	if b.o.Dimensions != nil {
		field(b.o.DimensionsField)
		tail = strconv.AppendInt(tail, int64(*b.o.Dimensions), 10)
	}
	if b.o.Role != "" {
		field(b.o.RoleField)
		tail = appendString(tail, b.o.Role)
	}
	for _, name := range slices.Sorted(maps.Keys(b.extra)) {
		field(name)
		tail = append(tail, b.extra[name]...)
	}
	return head, append(tail, '}')
}

// requestBody returns the body of a request for texts.
func (p *Provider) requestBody(texts []string) []byte {
	size := len(p.head) + len(p.tail)
	for _, text := range texts {
		size += len(text) + len(text)/16 + 3
	}
	body := append(make([]byte, 0, size), p.head...)
	for i, text := range texts {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendString(body, text)
	}
	return append(body, p.tail...)
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	return append(appendEscaped(append(b, '"'), s), '"')
}

// appendEscaped appends s as it stands within a JSON string. Only what must be
// escaped is, unlike in encoding/json, which makes six bytes of each '<'. What is
// not UTF-8 becomes U+FFFD.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		b = append(b, s[done:i]...)
		i++
		done = i
		switch {
		case c >= utf8.RuneSelf:
			b = append(b, "\uFFFD"...)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, s[done:]...)
}

// Embed implements embed.Provider: one request, one answer, no retry. It sends
// the texts as they are; the Client has put the Prefix before them. The vectors of
// an answer share one array; each ends where the next begins and can't grow into
// it.
//
// # Errors
//
// A failed request is an *embed.ProviderError. Transient are the statuses 408,
// 409, 429 (unless the account is empty) and 5xx, a connection that failed and an
// answer that was cut off. Fatal are 401, 402, 403, 404, an empty account, a redirect
// and a page. A whole answer that is not JSON, or of another shape, wraps
// [embed.ErrBadAnswer]. MaybeBilled is set where the request was handed over to be
// written and no whole answer came, and for statuses with which a gateway or a
// server gives up on work that was begun. Where ctx ended, the error wraps
// ctx.Err(), and is Transient unless ctx was cancelled.
//
// No error has the key, and the provider's prose is in Detail alone.
func (p *Provider) Embed(ctx context.Context, texts []string) (*embed.Answer, error) {
	if p.err != nil {
		return nil, p.err
	}
	if len(texts) == 0 {
		return nil, errors.New("openai: no texts to embed")
	}
	content := p.requestBody(texts)
	var sent atomic.Bool
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint, &requestReader{bytes.NewReader(content), &sent})
	if err != nil {
		// The endpoint parsed before; what is left is a nil context.
		return nil, errors.New("openai: the request can't be made: ctx is nil")
	}
	request.ContentLength = int64(len(content))
	request.GetBody = func() (io.ReadCloser, error) { // for a connection that was closed while idle
		return &requestReader{bytes.NewReader(content), &sent}, nil
	}
	request.Header = p.header.Clone()
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host // net/http ignores it in the header
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, p.noAnswer(ctx, err, sent.Load())
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
		if err != nil && ctx.Err() != nil {
			return nil, p.noAnswer(ctx, err, statusMaybeBilled(response.StatusCode))
		}
		return nil, p.refusal(response, body)
	}
	body, err := p.read(response)
	if errors.Is(err, errTooLong) {
		return nil, &embed.ProviderError{Status: response.StatusCode, RequestID: p.clean(requestID(response.Header)), MaybeBilled: true, Err: err}
	}
	if err != nil {
		return nil, p.noAnswer(ctx, fmt.Errorf("answer was cut off: %w", err), true)
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	answer, failed, err := decodeAnswer(body)
	if failed && (err != nil || len(answer.Vectors) == 0) {
		return nil, p.refusal(response, body)
	}
	if err != nil {
		e := &embed.ProviderError{Status: response.StatusCode, RequestID: p.clean(requestID(response.Header)), MaybeBilled: true, Err: err}
		if syntax := (*syntaxError)(nil); errors.As(err, &syntax) {
			start := bytes.TrimLeft(body, " \t\r\n")
			page := len(start) > 0 && !bytes.ContainsAny(start[:1], "{[")
			switch {
			case page: // of a portal, or of the server's front door
				e.Fatal, e.MaybeBilled, e.Err = true, false, errNoAPI
			case syntax.cutOff():
				e.Transient = true
			default:
				e.Err = fmt.Errorf("%w: %w", embed.ErrBadAnswer, err)
			}
		}
		return nil, e
	}
	return answer, nil
}

var (
	errTooLong = errors.New("answer is longer than Options.MaxAnswerBytes")
	errNoAPI   = errors.New("answer is not JSON: is BaseURL where the API begins, such as in \"/v1\"?")
	// errNotShown stands for an error that would print more than it may.
	errNotShown = errors.New("the cause is not shown, because it quotes the key or the answer")
)

// read reads a whole answer, of at most maxBytes.
func (p *Provider) read(response *http.Response) ([]byte, error) {
	if response.ContentLength > p.maxBytes {
		return nil, errTooLong
	}
	// The length that is announced spares copies, but is not trusted with more
	// memory than most answers need.
	size := min(max(response.ContentLength, 0), 32<<20) + 1
	b := make([]byte, 0, max(size, 8<<10))
	for {
		n, err := response.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > p.maxBytes:
			return nil, errTooLong
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
		if len(b) == cap(b) {
			b = slices.Grow(b, min(len(b), 64<<20))
		}
	}
}

// requestReader is the body of a request. It sets sent once all of it was read:
// before that, nobody can have got the request. This holds for any transport,
// also one that fails before it sends anything.
type requestReader struct {
	r    *bytes.Reader
	sent *atomic.Bool
}

func (r *requestReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if r.r.Len() == 0 {
		r.sent.Store(true)
	}
	return n, err
}

func (r *requestReader) Close() error { return nil }

// noAnswer returns the error of a request without a whole answer.
func (p *Provider) noAnswer(ctx context.Context, err error, maybeBilled bool) error {
	// A *url.Error prints the URL, with a user name and the query.
	var wrapped *url.Error
	for errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if !p.canBeShown(err) {
		err = errNotShown
	}
	e := &embed.ProviderError{MaybeBilled: maybeBilled, Transient: true, Err: err}
	if ended := ctx.Err(); ended != nil {
		e.Transient = !errors.Is(ended, context.Canceled)
		if !errors.Is(err, ended) {
			e.Err = fmt.Errorf("%w: %w", ended, err)
		}
	}
	return e
}

// canBeShown says whether err quotes neither a secret nor what the server sent, as
// net/http does of an answer that it can't parse: a server can send back the text.
func (p *Provider) canBeShown(err error) bool {
	message := err.Error()
	quotes := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(message, word) })
	}
	// The last two are of HTTP/2, whose GOAWAY has a text of the server's.
	broken := quotes("transport connection broken", "malformed", "http2:", "GOAWAY")
	plain := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	return (!broken || plain) && p.clean(message) != ""
}

// clean returns s, or "" if it has a secret in it.
func (p *Provider) clean(s string) string {
	for _, secret := range p.secrets {
		if strings.Contains(s, secret) {
			return ""
		}
	}
	return s
}
