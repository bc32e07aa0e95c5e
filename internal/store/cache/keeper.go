// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
)

// keeper keeps the body of a write, so that the object is in the cache when the upstream has confirmed the write. A
// keeper never slows the write: if the disk is too slow, the body is not kept.
type keeper struct {
	b    *bucket
	size int64

	draft *cachefile.Draft
	crc   uint64 // of the written blocks; read after end
	cur   []byte // block that is being filled
	next  chan []byte
	wrote sync.WaitGroup
	at    int64 // blocks sent to next
	done  bool  // next is closed

	mu     sync.Mutex
	failed bool // the body is not kept
}

// newKeeper returns a keeper that reads p.Body along with the upstream, or nil if the object is not to be kept.
func (b *bucket) newKeeper(ctx context.Context, p *object.Put) *keeper {
	if p.Size < 0 {
		return nil
	}
	d, ok, err := b.s.files.Draft(ctx, b.origin, p.Key, p.Size)
	if err != nil || !ok {
		return nil // there is no room, or the cache cannot be written
	}
	k := &keeper{b: b, size: p.Size, draft: d, next: make(chan []byte, queued)}
	k.wrote.Go(k.write)
	p.Body = &kept{r: p.Body, k: k}
	return k
}

// kept is the body of a write that a keeper keeps.
type kept struct {
	r io.Reader
	k *keeper
}

// Read implements io.Reader.
func (t *kept) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.k.add(p[:n])
	return n, err
}

// add adds bytes of the body.
func (k *keeper) add(p []byte) {
	for len(p) > 0 && !k.bad() {
		if k.cur == nil {
			if k.at*blockSize >= k.size {
				k.fail() // the body is longer than announced
				return
			}
			k.cur = (*blocks.Get().(*[]byte))[:0]
		}
		whole := int(min(blockSize, k.size-k.at*blockSize))
		n := min(whole-len(k.cur), len(p))
		k.cur = append(k.cur, p[:n]...)
		p = p[n:]
		if len(k.cur) < whole {
			return
		}
		select {
		case k.next <- k.cur:
			k.at++
		default:
			k.fail()
		}
		k.cur = nil
	}
}

// write writes the blocks to the disk, in the goroutine of the keeper.
func (k *keeper) write() {
	n := int64(0)
	for p := range k.next {
		if !k.bad() {
			if err := k.draft.Put(context.Background(), n, p); err != nil {
				k.fail()
			}
			k.crc = k.b.s.join.After(k.crc, int64(len(p))) ^ checksum.Of(p)
		}
		n++
		whole := p[:blockSize]
		blocks.Put(&whole)
	}
}

func (k *keeper) bad() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

func (k *keeper) fail() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = true
}

// end waits until all blocks are written.
func (k *keeper) end() {
	if !k.done {
		k.done = true
		close(k.next)
		k.wrote.Wait()
	}
}

// drop gives up the body.
func (k *keeper) drop() {
	if k != nil {
		k.end()
		k.draft.Drop()
	}
}

// keep makes the body an entry of the content that the upstream has confirmed.
func (k *keeper) keep(ctx context.Context, info object.Info) {
	if k == nil {
		return
	}
	defer k.drop()
	k.end()
	b := k.b
	id := object.Identity{Origin: b.origin, Key: info.Key, ETag: info.ETag, Size: k.size}
	if info.Versioned() {
		id.Version = info.Version
	}
	if k.bad() || k.at*blockSize < k.size || info.ETag == "" || info.Size != k.size ||
		!info.NoCRC64 && info.CRC64 != k.crc {
		return
	}
	if err := k.draft.Keep(ctx, id); err != nil {
		b.s.log.Warn("an object that was written is not in the cache", "bucket", b.Name, "key", info.Key, "error", err)
		return
	}
	if e, ok := b.s.files.Peek(id); ok {
		e.Proven(byCRC64) // the upstream has confirmed the client's bytes, and the same bytes are on the disk
		e.Release()
	}
	b.written(id, info, k.crc)
}
