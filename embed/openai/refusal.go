package openai

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/embedonce/embedonce/embed"
)

const (
	// maxErrorBytes is how much of an error's body is read, and maxDetail how much
	// of its prose is kept.
	maxErrorBytes = 64 << 10
	maxDetail     = 4 << 10
)

// emptyAccount has the codes and types of errors that only a person can mend, by
// paying: https://platform.openai.com/docs/guides/error-codes.
var emptyAccount = map[string]bool{
	"insufficient_quota":         true,
	"billing_not_active":         true,
	"billing_hard_limit_reached": true,
}

// refusal returns the error of an answer that has no vectors: of a status that is
// no success, or of a success with an error as its body, as gateways such as
// OpenRouter send.
func (p *Provider) refusal(response *http.Response, body []byte) *embed.ProviderError {
	told := parseError(body)
	e := &embed.ProviderError{
		Status:     response.StatusCode,
		Code:       p.clean(told.code),
		Type:       p.clean(told.kind),
		RequestID:  p.clean(requestID(response.Header)),
		RetryAfter: retryAfter(response.Header, time.Now()),
	}
	status := response.StatusCode
	if status/100 == 2 {
		// What the error itself says is all there is to go by.
		e.MaybeBilled = true
		if n, err := strconv.Atoi(told.code); err == nil && 300 <= n && n <= 599 {
			status = n
		}
	}
	if status/100 != 2 {
		e.MaybeBilled = statusMaybeBilled(status)
	}
	switch {
	case emptyAccount[told.code] || emptyAccount[told.kind]:
		e.Fatal = true
	case status == http.StatusRequestTimeout || status == http.StatusConflict ||
		status == http.StatusTooManyRequests || status >= 500:
		e.Transient = true
	case status == http.StatusUnauthorized || status == http.StatusPaymentRequired ||
		status == http.StatusForbidden || status == http.StatusNotFound || status >= 300 && status < 400:
		e.Fatal = true
	}
	detail := told.message
	for _, secret := range p.secrets {
		detail = strings.ReplaceAll(detail, secret, "[secret]")
	}
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "")
	}
	return e.WithDetail(detail)
}

// statusMaybeBilled says whether a status can follow work that was done: a server
// that failed (500), gateways that lost or gave up on the one behind them (502,
// 504, Cloudflare's 520 and 524) and what is not known. The others refuse before
// any work, as with 503 for overload, or never reached a server.
func statusMaybeBilled(status int) bool {
	switch status {
	case http.StatusNotImplemented, http.StatusServiceUnavailable, http.StatusHTTPVersionNotSupported,
		521, 522, 523, 525, 526, 529, 530:
		return false
	}
	return status >= 500
}

// requestID returns the provider's name for a request: OpenAI's, and what Azure's
// gateway, Azure's service, some proxies and Cloudflare call it.
func requestID(h http.Header) string {
	for _, name := range []string{"x-request-id", "apim-request-id", "x-ms-request-id", "request-id", "cf-ray"} {
		if id := h.Get(name); id != "" {
			return id
		}
	}
	return ""
}

// retryAfter returns how long the answer asks to wait: OpenAI's and Azure's
// retry-after-ms, or else Retry-After in seconds or as a date. A date counts from
// the answer's own Date, so that a wrong clock here doesn't matter.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if d, ok := positive(h.Get("retry-after-ms"), time.Millisecond); ok {
		return d
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if d, ok := positive(value, time.Second); ok {
		return d
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(until.Sub(now), 0)
}

// positive reads a number of units, at most a year of them.
func positive(s string, unit time.Duration) (time.Duration, bool) {
	const year = 365 * 24 * time.Hour
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil && !math.IsInf(n, 0) || math.IsNaN(n) {
		return 0, false
	}
	return time.Duration(min(max(n*float64(unit), 0), float64(year))), true
}

// told is what an error's body tells.
type told struct{ code, kind, message string }

// parseError reads the bodies of errors as OpenAI, Azure and Mistral
// ({"error":{...}}), Gemini (the same in an array), text-embeddings-inference
// ({"error":"...","error_type":"..."}), vLLM, Azure's gateway and DashScope
// ({"message":...}) and Voyage and FastAPI ({"detail":...}) write them. Of
// anything else, such as a proxy's page, the body is the message.
func parseError(body []byte) told {
	var root any
	if json.Unmarshal(body, &root) != nil {
		return told{message: strings.TrimSpace(strings.ToValidUTF8(string(body), "\uFFFD"))}
	}
	if list, ok := root.([]any); ok && len(list) > 0 {
		root = list[0]
	}
	outer, _ := root.(map[string]any)
	inner, _ := outer["error"].(map[string]any)
	first := func(names ...string) string {
		for _, object := range []map[string]any{inner, outer} {
			for _, name := range names {
				switch v := object[name].(type) {
				case string:
					if v != "" {
						return v
					}
				case float64:
					return strconv.FormatFloat(v, 'f', -1, 64)
				}
			}
		}
		return ""
	}
	t := told{code: first("code", "statusCode"), kind: first("type", "status", "error_type")}
	if t.message = first("message", "detail", "error"); t.message == "" {
		t.message = strings.TrimSpace(string(body))
	}
	return t
}
