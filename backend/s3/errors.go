package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/embedonce/embedonce/backend"
)

var errClosed = fmt.Errorf("s3: cache is %w", backend.ErrClosed)

var (
	// errSlow: no answer in the time that a request has.
	errSlow = errors.New("no answer in time")
	// errCut: an answer ended before its end.
	errCut = errors.New("the answer was cut off")
)

// failure is an error of ours. Its text is our own: what servers and the SDK write
// quotes names, addresses and parts of credentials.
type failure struct {
	text string
	is   []error // the sentinel and the cause
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.is }

// operation is a kind of request, with the permission that it needs.
type operation struct{ name, permission string }

var (
	opList   = operation{"list", "s3:ListBucket"}
	opGet    = operation{"read", "s3:GetObject"}
	opPut    = operation{"write", "s3:PutObject"}
	opDelete = operation{"delete", "s3:DeleteObject"}
)

// answer is what a server said to a request that failed.
type answer struct {
	status  int    // 0: there was none
	code    string // "" if the answer had none
	request string // the server's number for it
}

func answerOf(err error) (a answer) {
	var api smithy.APIError
	if errors.As(err, &api) {
		a.code = api.ErrorCode()
	}
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		a.status, a.request = response.HTTPStatusCode(), response.ServiceRequestID()
	}
	return a
}

func (a answer) missing() bool {
	return a.status == http.StatusNotFound && a.code != "NoSuchBucket" && a.code != "NoSuchUpload"
}

func (a answer) preconditionFailed() bool { return a.status == http.StatusPreconditionFailed }

// retriable says whether the same request may go through later.
func (a answer) retriable() bool {
	switch a.code {
	case "RequestTimeTooSkewed", "RequestTimeout", "IncompleteBody", "BadDigest", "SlowDown", "Throttling", "ThrottlingException",
		"ConditionalRequestConflict", "OperationAborted", "InternalError", "ServiceUnavailable", "XAmzContentSHA256Mismatch":
		return true
	case "NotImplemented":
		return false
	}
	switch a.status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusConflict:
		return true
	case http.StatusNotImplemented, http.StatusInsufficientStorage:
		return false
	}
	// A success that is an error has an answer that can't be read.
	return a.status >= 500 || a.status < 300
}

// fail makes an error of ours from what a request ended with.
func (r *remote) fail(op operation, err error) error {
	why, sentinel := explain(op, err)
	f := &failure{text: fmt.Sprintf("s3: %s: %s: %s", r.where(), op.name, why)}
	if sentinel != nil {
		f.is = append(f.is, sentinel)
	}
	f.is = append(f.is, err)
	return f
}

func explain(op operation, err error) (why string, sentinel error) {
	a := answerOf(err)
	said := fmt.Sprintf("HTTP %d", a.status)
	if code := plainWord(a.code); code != "" {
		said = code + ", " + said
	}
	if id := plainWord(a.request); id != "" {
		said += ", request " + id
	}
	switch {
	case errors.Is(err, errSlow), errors.Is(err, errCut):
		return "the server is unavailable: " + plainError(err), backend.ErrUnavailable
	case a.code == "NoSuchBucket":
		return "there is no such bucket (" + said + ")", backend.ErrUnavailable
	case a.code == "RequestTimeTooSkewed":
		return "this machine's clock and the server's differ by more than the server allows: set this machine's clock (" + said + ")", backend.ErrUnavailable
	case a.code == "InvalidAccessKeyId", a.code == "SignatureDoesNotMatch", a.code == "ExpiredToken", a.code == "InvalidToken":
		return "the server doesn't accept the credentials (" + said + ")", backend.ErrUnavailable
	case a.code == "PermanentRedirect", a.code == "AuthorizationHeaderMalformed", a.status == http.StatusMovedPermanently:
		return "the bucket is in another region: set Options.Region, or the client's (" + said + ")", backend.ErrUnavailable
	case a.status == http.StatusForbidden && strings.Contains(strings.ToLower(a.code), "quota"), a.status == http.StatusInsufficientStorage:
		return "the store is full (" + said + ")", backend.ErrUnavailable
	case a.status == http.StatusForbidden:
		why := "not allowed: the permission " + op.permission + " is needed (" + said + ")"
		if op == opPut || op == opDelete {
			return why, backend.ErrReadOnly
		}
		return why, backend.ErrUnavailable
	case a.status == http.StatusPreconditionFailed, op == opPut && errors.Is(err, errMissing):
		return "another object has the name of ours", backend.ErrUnavailable
	case errors.Is(err, errMissing):
		return "objects are deleted faster than they can be read", backend.ErrUnavailable
	case a.status == http.StatusServiceUnavailable, a.status == http.StatusTooManyRequests:
		return "the server is unavailable or asks to slow down (" + said + ")", backend.ErrUnavailable
	case a.status >= 500:
		return "the server failed (" + said + ")", backend.ErrUnavailable
	case a.status >= 200 && a.status < 300:
		return "the server's answer can't be read (" + said + ")", backend.ErrUnavailable
	case a.status >= 300:
		return "the server refused the request (" + said + ")", nil
	}
	return "the server can't be reached: " + plainError(err), backend.ErrUnavailable
}

// plainWord returns s if it is a code and not prose.
func plainWord(s string) string {
	if len(s) > 64 {
		return ""
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return ""
		}
	}
	return s
}

// plainError returns what may be shown of an error that is no server's answer.
func plainError(err error) string {
	var network *url.Error
	switch {
	case errors.Is(err, errSlow):
		return errSlow.Error()
	case errors.Is(err, errCut):
		return errCut.Error()
	case errors.As(err, &network):
		return network.Err.Error() // network itself has the URL
	case strings.Contains(err.Error(), "credentials"):
		return "the SDK finds no credentials that it can use"
	}
	return "the request could not be made"
}

// ended is the error of a call whose context has ended.
func (r *remote) ended(ctx context.Context, doing string) error {
	return fmt.Errorf("s3: %s: %s: %w", r.where(), doing, ctx.Err())
}
