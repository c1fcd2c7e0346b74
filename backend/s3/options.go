package s3

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Options sets up a Cache. The zero value of each field is its default.
type Options struct {
	// Region, Endpoint and Credentials are for Open; with New the client has them.
	// What is not set comes from where all programs with the AWS SDK have it: the
	// environment, the shared configuration files, the role of the machine.
	//
	// Endpoint is the URL of an S3 server that is not Amazon's, such as
	// "http://localhost:9000". The bucket goes into the path then, and Region is
	// "us-east-1" if nobody says otherwise.
	Region, Endpoint string
	Credentials      aws.CredentialsProvider

	// Prefix is the folder in the bucket that the cache has for itself. With Open it
	// is the path of the URL, and must not be here too.
	Prefix string

	// ReadOnly takes no writes: SetMany, Delete and Compact return
	// backend.ErrReadOnly.
	ReadOnly bool

	// Freshness is how long it may take until a GetMany sees what another handle has
	// written: the store is listed at most once in this time, when something is
	// read. 0 is 10 seconds. Each listing costs as much as a write.
	Freshness time.Duration

	// Timeout is how long a request may go without an answer, all tries together; a
	// request with a long body gets a second more for each MiB. A context that ends
	// earlier ends the call. 0 is 30 seconds.
	Timeout time.Duration

	// ParallelGets is how many requests one call has under way at once to read
	// vectors or indexes. 0 is 32.
	ParallelGets int

	// GapBytes is how far apart two values may be to be read by one request. 0 is
	// 128 KiB; a lower number suits a slow connection that is near, a higher one a
	// fast connection that is far. -1 joins only what is side by side.
	GapBytes int

	// WriteLanes is how many segments may be written at once. A second one opens
	// only when 1 MiB is waiting: small writes share. 0 is 4.
	WriteLanes int

	// MultipartBytes is the size from which on a segment is sent in parts of 16 MiB.
	// 0 is 64 MiB.
	MultipartBytes int64

	// Encryption is the server-side encryption to ask for: "" (the bucket's own),
	// "AES256", "aws:kms" or "aws:kms:dsse". KMSKeyID is the key for the latter two,
	// "" is the account's.
	Encryption, KMSKeyID string

	// IndexCache is a directory on this machine in which indexes are kept, so that
	// Open need not read them again; it is made if it doesn't exist. "" keeps none.
	// It has digests and lengths, no vectors. Several handles, also of several
	// stores, may share one.
	IndexCache string

	// CompactBytes is how much a segment that Compact writes has at most, in bytes;
	// Compact holds about twice as much in memory. 0 is 128 MiB.
	CompactBytes int

	// Grace is how long a segment stays in the bucket after Compact has replaced it,
	// for readers that don't know yet. 0 is one hour.
	Grace time.Duration
}

const (
	defaultFreshness      = 10 * time.Second
	defaultTimeout        = 30 * time.Second
	defaultParallelGets   = 32
	defaultGapBytes       = 128 << 10
	defaultWriteLanes     = 4
	defaultMultipartBytes = 64 << 20
	defaultCompactBytes   = 128 << 20
	defaultGrace          = time.Hour

	maxParallelGets   = 512
	maxWriteLanes     = 64
	maxCompactBytes   = 1 << 30
	minMultipartBytes = partBytes
	maxPutBytes       = 5 << 30 // a limit of S3
)

// withDefaults returns a copy of o, which may be nil, with every default filled in,
// or one error that lists all that is wrong, with problems that the caller knows.
func (o *Options) withDefaults(what string, opens bool, problems ...error) (Options, error) {
	var full Options
	if o != nil {
		full = *o
	}
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	duration := func(name string, d *time.Duration, otherwise time.Duration) {
		if *d < 0 {
			wrong("Options.%s is %v; at least 0 is allowed", name, *d)
		} else if *d == 0 {
			*d = otherwise
		}
	}
	if !opens && (full.Region != "" || full.Endpoint != "" || full.Credentials != nil) {
		wrong("Options.Region, Endpoint and Credentials are for Open; the client of New has its own")
	}
	if full.Endpoint != "" {
		// What is in a URL ends up in errors.
		u, err := url.Parse(full.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			wrong("Options.Endpoint must be http://HOST or https://HOST, without user, password and query")
		}
	}
	full.Prefix = cleanPrefix(full.Prefix)
	if len(full.Prefix) > 900 { // a name has at most 1,024 bytes
		wrong("Options.Prefix has %d bytes; at most 900 are allowed", len(full.Prefix))
	}
	duration("Freshness", &full.Freshness, defaultFreshness)
	duration("Timeout", &full.Timeout, defaultTimeout)
	duration("Grace", &full.Grace, defaultGrace)
	if full.ParallelGets < 0 || full.ParallelGets > maxParallelGets {
		wrong("Options.ParallelGets is %d; 0 to %d are allowed", full.ParallelGets, maxParallelGets)
	} else if full.ParallelGets == 0 {
		full.ParallelGets = defaultParallelGets
	}
	switch {
	case full.GapBytes < -1 || full.GapBytes > splitBytes:
		wrong("Options.GapBytes is %d; -1 to %d are allowed", full.GapBytes, splitBytes)
	case full.GapBytes == 0:
		full.GapBytes = defaultGapBytes
	case full.GapBytes == -1:
		full.GapBytes = 0
	}
	if full.WriteLanes < 0 || full.WriteLanes > maxWriteLanes {
		wrong("Options.WriteLanes is %d; 0 to %d are allowed", full.WriteLanes, maxWriteLanes)
	} else if full.WriteLanes == 0 {
		full.WriteLanes = defaultWriteLanes
	}
	if m := full.MultipartBytes; m != 0 && (m < minMultipartBytes || m > maxPutBytes) {
		wrong("Options.MultipartBytes is %d; 0 and %d to %d are allowed", m, int64(minMultipartBytes), int64(maxPutBytes))
	} else if m == 0 {
		full.MultipartBytes = defaultMultipartBytes
	}
	switch full.Encryption {
	case "", "AES256":
		if full.KMSKeyID != "" {
			wrong("Options.KMSKeyID is set while Options.Encryption is %q; \"aws:kms\" and \"aws:kms:dsse\" take one", full.Encryption)
		}
	case "aws:kms", "aws:kms:dsse":
	default:
		wrong("Options.Encryption is not known; \"\", \"AES256\", \"aws:kms\" and \"aws:kms:dsse\" are allowed")
	}
	if full.CompactBytes < 0 || full.CompactBytes > maxCompactBytes {
		wrong("Options.CompactBytes is %d; 0 to %d are allowed", full.CompactBytes, maxCompactBytes)
	} else if full.CompactBytes == 0 {
		full.CompactBytes = defaultCompactBytes
	}
	if err := errors.Join(problems...); err != nil {
		return full, fmt.Errorf("s3.%s: %w", what, err)
	}
	return full, nil
}

// cleanPrefix makes a folder of prefix: "" or "a/b/".
func cleanPrefix(prefix string) string {
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return prefix
}

// parseLocation takes s3://BUCKET/PREFIX apart. The errors don't quote it: somebody
// may have put a password in.
func parseLocation(location string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(location, "s3://")
	if !ok {
		return "", "", errors.New("url must be s3://BUCKET or s3://BUCKET/PREFIX")
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	if err := checkBucket(bucket); err != nil {
		return "", "", err
	}
	if strings.ContainsAny(prefix, "?#") {
		return "", "", errors.New("url has a query or a fragment; Options has the settings")
	}
	return bucket, cleanPrefix(prefix), nil
}

func checkBucket(bucket string) error {
	if bucket == "" {
		return errors.New("the bucket's name is empty")
	}
	for _, c := range bucket {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return errors.New("the bucket's name has a character that is no letter, digit, '.', '-' or '_'")
		}
	}
	return nil
}
