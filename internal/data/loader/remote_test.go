// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// remote is a file in memory that counts its uses after Close.
type remote struct {
	content []byte
	closed  atomic.Bool
	late    *atomic.Int64
}

func (r *remote) use() {
	if r.closed.Load() {
		r.late.Add(1)
	}
}

func (r *remote) Fetch(_ context.Context, off, n int64) (io.ReadCloser, error) {
	r.use()
	return io.NopCloser(bytes.NewReader(r.content[off : off+n])), nil
}

func (r *remote) Parallel() int { return 2 }

func (r *remote) Notes() []string {
	r.use()
	return nil
}

func (r *remote) Close() error {
	r.use() // a second Close is a use, too
	r.closed.Store(true)
	return nil
}

// TestFilesAreNotUsedAfterClose reads batches of more files than may stay open.
func TestFilesAreNotUsedAfterClose(t *testing.T) {
	r := newRig(t, 5, 41, ragged)
	var late atomic.Int64
	r.options.OpenFiles = 1
	r.options.Open = each(func(name string) (*vfs.File, error) {
		content, err := os.ReadFile(name)
		return vfs.NewRemote(name, int64(len(content)), &remote{content: content, late: &late}), err
	})
	if n := len(r.all(t)); n != 26 || late.Load() != 0 {
		t.Errorf("%d batches; closed files were used %d times", n, late.Load())
	}
}
