package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// remote makes requests. Each is tried a few times; the SDK's own retries are off,
// since a PUT whose answer was lost needs another request than the first one.
type remote struct {
	client  *awss3.Client
	bucket  string
	prefix  string
	options Options
	counted counters
}

// counters has what Counters returns.
type counters struct {
	lists, gets, puts, deletes, retries atomic.Int64
	foreign, future, mismatched, lost   atomic.Int64
	bytesRead, bytesWritten, absorbed   atomic.Int64
	compacted                           atomic.Int64
}

func (r *remote) where() string { return "s3://" + r.bucket + "/" + strings.TrimSuffix(r.prefix, "/") }

const (
	tries        = 4
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	// slowest is the transfer that a request's time allows for.
	slowest = 1 << 20 // bytes a second
)

// attempt is one try of a request. Its time runs out when nothing happens for long.
type attempt struct {
	number  int // 1 is the first
	limit   time.Duration
	timer   *time.Timer
	restart bool // the failures before this attempt don't count any more
}

// alive starts the time anew, pause stops it while the caller is what is waited for.
func (a *attempt) alive() { a.timer.Reset(a.limit) }
func (a *attempt) pause() { a.timer.Stop() }

// try calls do until it succeeds, fails for good or has failed too often. size is
// how many bytes the request sends.
func (r *remote) try(ctx context.Context, op operation, size int64, do func(ctx context.Context, a *attempt) error) error {
	limit := r.options.Timeout/tries + time.Duration(size)*time.Second/slowest
	failures := 0
	for n := 1; ; n++ {
		restart, err := r.once(ctx, limit, n, do)
		if restart {
			failures = 0
		}
		failures++
		var final *finalError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return r.ended(ctx, op.name)
		case errors.As(err, &final):
			return final.err
		case failures == tries || !errors.Is(err, errSlow) && !errors.Is(err, errCut) && !answerOf(err).retriable():
			return r.fail(op, err)
		}
		r.counted.retries.Add(1)
		if !wait(ctx, failures) {
			return r.ended(ctx, op.name)
		}
	}
}

// finalError ends try at once, with err as it is.
type finalError struct{ err error }

func (f *finalError) Error() string { return f.err.Error() }

func (r *remote) once(ctx context.Context, limit time.Duration, n int, do func(ctx context.Context, a *attempt) error) (restart bool, err error) {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attempt{number: n, limit: limit, timer: time.AfterFunc(limit, func() { cancel(errSlow) })}
	defer a.timer.Stop()
	err = do(own, a)
	var final *finalError
	if err != nil && context.Cause(own) == errSlow && !errors.As(err, &final) {
		// What the SDK says is that a context was cancelled, and that was ours.
		err = fmt.Errorf("%w: within %v", errSlow, limit)
	}
	return a.restart, err
}

// wait waits after the n-th failure: twice as long each time, and not for all
// callers equally long. It returns false if ctx ends first.
func wait(ctx context.Context, n int) bool {
	longest := min(firstPause<<(n-1), longestPause)
	timer := time.NewTimer(longest/2 + rand.N(longest/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func perCall(o *awss3.Options) {
	o.Retryer = aws.NopRetryer{}
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.DisableLogOutputChecksumValidationSkipped = true
}

// object is what a listing says of one.
type object struct {
	name     string // relative to the prefix
	bytes    int64
	modified time.Time
}

// list calls visit with each object below the folder whose name is after start, and
// returns the server's time.
func (r *remote) list(ctx context.Context, folder, start string, visit func(object)) (now time.Time, err error) {
	in := &awss3.ListObjectsV2Input{Bucket: &r.bucket, Prefix: aws.String(r.prefix + folder)}
	if start != "" {
		in.StartAfter = aws.String(r.prefix + start)
	}
	for {
		var out *awss3.ListObjectsV2Output
		err := r.try(ctx, opList, 0, func(ctx context.Context, _ *attempt) (err error) {
			r.counted.lists.Add(1)
			out, err = r.client.ListObjectsV2(ctx, in, perCall)
			return err
		})
		if err != nil {
			return now, err
		}
		if at, ok := awsmiddleware.GetServerTime(out.ResultMetadata); ok {
			now = at
		}
		for _, o := range out.Contents {
			if name, ok := strings.CutPrefix(aws.ToString(o.Key), r.prefix); ok {
				visit(object{name, aws.ToInt64(o.Size), aws.ToTime(o.LastModified)})
			}
		}
		if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextContinuationToken) == "" {
			return now, nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// errMissing: the object isn't there.
var errMissing = errors.New("no such object")

// get asks for bytes of an object, and lets read have the answer as it comes. After
// a failure of the transfer it asks for what next returns then, so that nothing is
// read twice; read must return what body failed with. Any other error of read ends
// get. errMissing and errForeignObject say that the object, or so much of it, isn't
// there.
func (r *remote) get(ctx context.Context, name string, next func() (from, to uint64), read func(a *attempt, body io.Reader) error) error {
	var last uint64
	return r.try(ctx, opGet, 0, func(ctx context.Context, a *attempt) error {
		from, to := next()
		a.restart = a.number > 1 && from > last // the try before was of some use
		last = from
		r.counted.gets.Add(1)
		out, err := r.client.GetObject(ctx, &awss3.GetObjectInput{
			Bucket: &r.bucket, Key: aws.String(r.prefix + name), Range: aws.String(fmt.Sprintf("bytes=%d-%d", from, to-1)),
		}, perCall)
		switch got := answerOf(err); {
		case err == nil:
		case got.missing():
			return &finalError{errMissing}
		case got.status == http.StatusRequestedRangeNotSatisfiable:
			return &finalError{fmt.Errorf("%w: shorter than it was", errForeignObject)}
		default:
			return err
		}
		defer func() { _ = out.Body.Close() }() // what counts of it was read
		if got := aws.ToInt64(out.ContentLength); got != 0 && got != int64(to-from) {
			return fmt.Errorf("%w: other bytes than asked for", errCut)
		}
		a.alive()
		err = read(a, &counting{out.Body, &r.counted.bytesRead, a})
		var body *bodyError
		switch {
		case err == nil:
			// Up to its end, so that the connection can be used again.
			_, _ = io.CopyN(io.Discard, out.Body, 64<<10)
			return nil
		case errors.As(err, &body):
			return fmt.Errorf("%w: %w", errCut, body.err)
		}
		return &finalError{err}
	})
}

// bodyError is the failure of a transfer, not of what is done with it.
type bodyError struct{ err error }

func (b *bodyError) Error() string { return b.err.Error() }

type counting struct {
	io.Reader
	n *atomic.Int64
	a *attempt
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	if n > 0 {
		c.a.alive()
	}
	if err != nil && err != io.EOF {
		err = &bodyError{err}
	}
	return n, err
}

// readRange returns the bytes from to to of an object. No more memory is taken than
// bytes come.
func (r *remote) readRange(ctx context.Context, name string, from, to uint64) ([]byte, error) {
	var buf bytes.Buffer
	err := r.get(ctx, name, func() (uint64, uint64) { return from + uint64(buf.Len()), to }, func(_ *attempt, body io.Reader) error {
		_, err := io.Copy(&buf, io.LimitReader(body, int64(to-from)-int64(buf.Len())))
		if err == nil && uint64(buf.Len()) < to-from {
			err = &bodyError{io.ErrUnexpectedEOF}
		}
		return err
	})
	return buf.Bytes(), err
}

func checksum(b []byte) *string {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum)))
}

// put stores an object whose name is used for nothing else. It returns nil only if
// the object is there.
func (r *remote) put(ctx context.Context, name string, body []byte) error {
	if int64(len(body)) > r.options.MultipartBytes {
		return r.putParts(ctx, name, body)
	}
	in := &awss3.PutObjectInput{
		Bucket: &r.bucket, Key: aws.String(r.prefix + name), ContentLength: aws.Int64(int64(len(body))), ChecksumCRC32C: checksum(body),
		ContentType:          aws.String("application/octet-stream"),
		ServerSideEncryption: types.ServerSideEncryption(r.options.Encryption),
	}
	if r.options.KMSKeyID != "" {
		in.SSEKMSKeyId = &r.options.KMSKeyID
	}
	conditional := true
	return r.try(ctx, opPut, int64(len(body)), func(ctx context.Context, a *attempt) error {
		in.Body = bytes.NewReader(body)
		in.IfNoneMatch = nil
		if a.number > 1 && conditional {
			// The first try may have got there, and only its answer was lost.
			in.IfNoneMatch = aws.String("*")
		}
		r.counted.puts.Add(1)
		_, err := r.client.PutObject(ctx, in, perCall)
		switch got := answerOf(err); {
		case err == nil:
			r.counted.bytesWritten.Add(int64(len(body)))
		case got.preconditionFailed():
			return r.mine(ctx, name, body)
		case in.IfNoneMatch != nil && !got.retriable() && (got.status == 400 || got.status == 501):
			conditional = false // a server that knows no such condition
			return errCut
		}
		return err
	})
}

// mine returns nil if the object is this one.
func (r *remote) mine(ctx context.Context, name string, body []byte) error {
	from := max(0, len(body)-footerSize)
	end, err := r.readRange(ctx, name, uint64(from), uint64(len(body)))
	switch {
	case errors.Is(err, errMissing), errors.Is(err, errForeignObject):
		return &finalError{r.fail(opPut, err)}
	case err != nil:
		return &finalError{err}
	case !bytes.Equal(end, body[from:]):
		return &finalError{r.fail(opPut, errors.New("another object has its name"))}
	}
	r.counted.absorbed.Add(1)
	return nil
}

func (r *remote) remove(ctx context.Context, name string) error {
	return r.try(ctx, opDelete, 0, func(ctx context.Context, _ *attempt) error {
		r.counted.deletes.Add(1)
		_, err := r.client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &r.bucket, Key: aws.String(r.prefix + name)}, perCall)
		if err != nil && answerOf(err).missing() {
			return nil
		}
		return err
	})
}
