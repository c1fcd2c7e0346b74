package s3

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	partBytes     = 16 << 20
	parallelParts = 4
	// abortTime is for taking back the parts of an upload that failed.
	abortTime = 10 * time.Second
)

// putParts is put for a large object. It becomes visible with the last request, as
// a whole.
func (r *remote) putParts(ctx context.Context, name string, body []byte) (err error) {
	key := aws.String(r.prefix + name)
	create := &awss3.CreateMultipartUploadInput{
		Bucket: &r.bucket, Key: key, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, ContentType: aws.String("application/octet-stream"),
		ServerSideEncryption: types.ServerSideEncryption(r.options.Encryption),
	}
	if r.options.KMSKeyID != "" {
		create.SSEKMSKeyId = &r.options.KMSKeyID
	}
	var id *string
	err = r.try(ctx, opPut, 0, func(ctx context.Context, _ *attempt) error {
		r.counted.puts.Add(1)
		out, err := r.client.CreateMultipartUpload(ctx, create, perCall)
		if err == nil {
			id = out.UploadId
		}
		return err
	})
	if err != nil {
		return err
	}
	completed := false
	defer func() {
		if completed {
			return
		}
		// The caller's context may be what ended. If this fails too, the parts stay
		// until the bucket's lifecycle rule for unfinished uploads takes them.
		abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
		defer cancel()
		_, _ = r.client.AbortMultipartUpload(abort, &awss3.AbortMultipartUploadInput{Bucket: &r.bucket, Key: key, UploadId: id}, perCall)
	}()
	parts, err := r.sendParts(ctx, key, id, body)
	if err != nil {
		return err
	}
	err = r.try(ctx, opPut, 0, func(ctx context.Context, a *attempt) error {
		r.counted.puts.Add(1)
		_, err := r.client.CompleteMultipartUpload(ctx, &awss3.CompleteMultipartUploadInput{
			Bucket: &r.bucket, Key: key, UploadId: id, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		}, perCall)
		if a.number > 1 && answerOf(err).code == "NoSuchUpload" {
			// An earlier try may have completed it, and only its answer was lost.
			return r.mine(ctx, name, body)
		}
		return err
	})
	completed = err == nil
	if completed {
		r.counted.bytesWritten.Add(int64(len(body)))
	}
	return err
}

func (r *remote) sendParts(ctx context.Context, key, id *string, body []byte) ([]types.CompletedPart, error) {
	n := (len(body) + partBytes - 1) / partBytes
	parts := make([]types.CompletedPart, n)
	errs := make([]error, n)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	room := make(chan struct{}, parallelParts)
	for i := range n {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			part := body[i*partBytes : min((i+1)*partBytes, len(body))]
			sum := checksum(part)
			errs[i] = r.try(ctx, opPut, int64(len(part)), func(ctx context.Context, _ *attempt) error {
				r.counted.puts.Add(1)
				out, err := r.client.UploadPart(ctx, &awss3.UploadPartInput{
					Bucket: &r.bucket, Key: key, UploadId: id, PartNumber: aws.Int32(int32(i + 1)),
					Body: bytes.NewReader(part), ContentLength: aws.Int64(int64(len(part))), ChecksumCRC32C: sum,
				}, perCall)
				if err == nil {
					parts[i] = types.CompletedPart{PartNumber: aws.Int32(int32(i + 1)), ETag: out.ETag, ChecksumCRC32C: sum}
				}
				return err
			})
			if errs[i] != nil {
				cancel() // the others are of no use any more
			}
		})
	}
	group.Wait()
	// The one that failed first says why; the others were cancelled.
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	return parts, errors.Join(errs...)
}
