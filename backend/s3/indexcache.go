package s3

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// indexCache keeps tails in files, so that Open need not read them from the store.
// A file is believed only if its checksums and the size of the object fit: it may be
// cut, changed or deleted at any time.
type indexCache struct{ dir string }

// openIndexCache makes the directory of one store.
func openIndexCache(dir string, endpoint *string, bucket, prefix string) (*indexCache, error) {
	where := fmt.Sprintf("%q %q", bucket, prefix)
	if endpoint != nil {
		where += fmt.Sprintf(" %q", *endpoint)
	}
	sum := sha256.Sum256([]byte(where))
	own := filepath.Join(dir, hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(own, 0o700); err != nil {
		return nil, err
	}
	return &indexCache{own}, nil
}

func (x *indexCache) path(name objectName) string {
	return filepath.Join(x.dir, strings.ReplaceAll(name.String(), "/", "-"))
}

// read returns what is kept for name, or nil.
func (x *indexCache) read(name objectName) []byte {
	b, err := os.ReadFile(x.path(name))
	if err != nil {
		return nil
	}
	return b
}

// write keeps a tail. It is a saving only: a disk that is full fails no call.
func (x *indexCache) write(name objectName, tail []byte) {
	file, err := os.CreateTemp(x.dir, "new-*")
	if err != nil {
		return
	}
	_, err = file.Write(tail)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), x.path(name))
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
}

// prune deletes the files of segments that are not listed any more.
func (x *indexCache) prune(listed map[string]object) {
	entries, err := os.ReadDir(x.dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		folder, rest, _ := strings.Cut(entry.Name(), "-")
		name := folder + "/" + rest
		if _, ours := parseName(name); !ours {
			continue
		}
		if _, there := listed[name]; !there {
			_ = os.Remove(filepath.Join(x.dir, entry.Name()))
		}
	}
}
