package consumerproof

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// s3Server starts an S3 server that knows three requests, puts its address where the
// AWS SDK of a consumer looks for it, and returns a function whose every call names an
// empty folder of a bucket.
func s3Server(t *testing.T) (nextPrefix func() string) {
	var mu sync.Mutex
	objects := make(map[string][]byte) // by path, bucket included
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		name := strings.TrimPrefix(r.URL.Path, "/")
		object, found := objects[name]
		switch {
		case r.Method == http.MethodPut:
			objects[name] = body
		case r.URL.Query().Has("list-type"):
			_ = xml.NewEncoder(w).Encode(listing(objects, strings.TrimSuffix(name, "/")+"/", r.URL.Query().Get("prefix")))
		case found:
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(object))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": server.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "none"), "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	var n atomic.Int64
	return func() string { return fmt.Sprintf("vectors/%d", n.Add(1)) }
}

// listing is the answer to a ListObjectsV2.
func listing(objects map[string][]byte, bucket, prefix string) any {
	type content struct {
		Key  string
		Size int
	}
	var answer struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []content
	}
	for name, object := range objects {
		if key, ok := strings.CutPrefix(name, bucket); ok && strings.HasPrefix(key, prefix) {
			answer.Contents = append(answer.Contents, content{key, len(object)})
		}
	}
	return answer
}
