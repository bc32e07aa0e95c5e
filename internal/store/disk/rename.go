// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Rename implements object.Directories. All records of the content are found by its sequence or its file, so that only
// the version's own record and the owner of its file change.
func (d directories) Rename(ctx context.Context, r object.Rename) error {
	const op = "rename"
	s := d.s
	end, err := s.begin(ctx, op, r.From)
	if err != nil {
		return err
	}
	defer end()
	for _, key := range []string{r.From, r.To} {
		if err := object.CheckKey(op, key); err != nil {
			return err
		}
	}
	bk, err := d.find(op, r.Bucket)
	if err != nil {
		return err
	}
	release, err := bk.hold(op)
	if err != nil {
		return err
	}
	defer release()
	keys := []string{r.From, r.To}
	if r.Token != "" {
		keys = append(keys, "\x00token\x00"+r.Token) // two requests with one token follow each other
	}
	defer s.stripes.lockAll(bk.id, keys)()
	done, err := d.renamed(op, bk, r)
	if done || err != nil {
		return err
	}
	head, err := s.current(bk, r.From)
	if err != nil {
		return err
	}
	if head == nil {
		return noKey(op, r.From, "")
	}
	old, err := s.current(bk, r.To)
	if err != nil {
		return err
	}
	if err := d.ask(bk, r.From, head, r.CheckFrom); err != nil {
		return err
	}
	if err := d.ask(bk, r.To, old, r.CheckTo); err != nil {
		return err
	}
	t := s.change(bk)
	if r.From != r.To {
		if old != nil {
			t.takeCurrent(r.To, old)
			t.dropContent(old)
		}
		t.takeCurrent(r.From, head)
		t.putCurrent(r.To, head)
		if head.File != 0 {
			t.own(head.File, record.Owner{Bucket: bk.id, Key: r.To, Seq: head.Seq, Part: -1})
		}
		t.s.journal.add(ctx, t, object.ChangeRenamed, r.From, head)
		t.s.journal.add(ctx, t, object.ChangeRename, r.To, head)
	}
	if err := d.keepToken(t, r); err != nil {
		t.cancel()
		return err
	}
	return t.commit(op, r.From)
}

// ask calls check with the description of a version, or with nil if there is none.
func (d directories) ask(bk *bucket, key string, v *record.Version, check func(*object.Info) error) error {
	if check == nil {
		return nil
	}
	if v == nil {
		return check(nil)
	}
	info := d.s.info(bk, key, v, true)
	return check(&info)
}

const (
	// tokenKind is the kind of the records that hold the tokens of renames.
	tokenKind = "rename-token"
	// tokenHour is the number of milliseconds in the hours by which tokens are stored. A token is found in the hour in
	// which it was used and in the next one.
	tokenHour = 3600 * 1000
	// mostTokens is the largest number of old tokens that one rename removes.
	mostTokens = 1024
)

// tokens removes old tokens.
type tokens struct{ swept atomic.Int64 } // the hour in which all older tokens were removed

// tokenName returns the name of the record of a token. Names of older hours sort before those of later hours.
func tokenName(hour int64, bucket uint64, token string) string {
	return fmt.Sprintf("%012x/%016x/%s", hour, bucket, token)
}

// renamed reports whether a request with the same token was done before.
func (d directories) renamed(op string, bk *bucket, r object.Rename) (bool, error) {
	if r.Token == "" {
		return false, nil
	}
	s := d.s
	hour := s.now() / tokenHour
	for _, h := range []int64{hour, hour - 1} {
		b, err := metadb.Get(s.db, record.Key(tokenKind, tokenName(h, bk.id, r.Token)))
		if err != nil {
			return false, err
		}
		if b == nil {
			continue
		}
		in := codec.Decoder{Rest: b}
		version, from, to := in.Byte(), in.Text(), in.Text()
		if version != record.Format || !in.Done() {
			return false, record.Unreadable("token", b)
		}
		if from != r.From || to != r.To {
			return false, object.Fail(op, r.From, object.ErrTokenUsed, fmt.Sprintf("it renamed %q to %q", from, to))
		}
		return true, s.writable(op, r.From)
	}
	return false, nil
}

// keepToken records the token of a rename, and removes tokens that are too old.
func (d directories) keepToken(t *tx, r object.Rename) error {
	if r.Token == "" {
		return nil
	}
	hour := d.s.now() / tokenHour
	p := make(codec.Encoder, 0, 16+len(r.From)+len(r.To))
	p.Byte(record.Format)
	p.Text(r.From)
	p.Text(r.To)
	t.set(record.Key(tokenKind, tokenName(hour, t.bk.id, r.Token)), p)
	if t.s.tokens.swept.Load() == hour {
		return nil
	}
	n := 0
	err := metadb.Each(t.s.db, record.Key(tokenKind, ""), record.Key(tokenKind, tokenName(hour-1, 0, "")),
		func(k, _ []byte) error {
			if n++; n > mostTokens {
				return metadb.ErrStop
			}
			t.del(append([]byte(nil), k...))
			return nil
		})
	if err == metadb.ErrStop {
		return nil // the next rename goes on
	}
	if err == nil {
		t.s.tokens.swept.Store(hour)
	}
	return err
}
