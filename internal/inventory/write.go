// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// file is a data file in the manifest.
type file struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
	MD5  string `json:"MD5checksum"`
}

// manifest is the document that lists the data files of an inventory, as in S3.
type manifest struct {
	Source      string `json:"sourceBucket"`
	Destination string `json:"destinationBucket"`
	Version     string `json:"version"`
	Created     string `json:"creationTimestamp"` // milliseconds since 1970
	Format      string `json:"fileFormat"`
	Schema      string `json:"fileSchema"`
	Files       []file `json:"files"`
}

// write writes an inventory and returns its report.
func (w *Worker) write(ctx context.Context, b *object.Bucket, c *Config, r *Report) (*Report, error) {
	const op = "write the inventory"
	select {
	case w.one <- struct{}{}:
	case <-ctx.Done():
		return nil, errs.Wrap(op, b.Name, context.Cause(ctx))
	}
	defer func() { <-w.one }()
	began := w.now().UTC()
	r.Started, r.Error = &began, ""
	err := w.fill(ctx, b, c, r)
	if err == nil {
		w.log.Info("an inventory was written", "bucket", b.Name, "id", c.ID, "objects", r.Objects, "destination", r.Target,
			"manifest", r.Manifest)
		return r, nil
	}
	r.Error = errs.MessageOf(err)
	if ctx.Err() == nil {
		if e := w.clean(ctx, r); e != nil {
			w.log.Warn("removing files of an inventory that failed was not possible", "bucket", b.Name, "error", e)
		}
	}
	return nil, errs.Wrap(op, b.Name+"/"+c.ID, err)
}

// clean removes the files of an inventory that was not completed.
func (w *Worker) clean(ctx context.Context, r *Report) error {
	for _, key := range r.Pending {
		info, err := w.store.Stat(ctx, object.Ref{Bucket: r.Target, Key: key})
		if errors.Is(err, object.ErrNoSuchKey) || errors.Is(err, object.ErrNoSuchBucket) {
			continue
		}
		if err == nil {
			_, err = w.store.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: r.Target, Key: key, Version: info.Version}})
		}
		if err != nil {
			return err
		}
	}
	r.Pending = nil
	return w.save(ctx, r)
}

// fill writes the files, the manifest and its checksum. The manifest comes when all files are durable, so that a
// manifest never names a missing file.
func (w *Worker) fill(ctx context.Context, b *object.Bucket, c *Config, r *Report) error {
	to, err := w.store.Bucket(ctx, c.Target())
	if err != nil {
		return err
	}
	if err := Allowed(b, to); err != nil {
		return err
	}
	if err := w.clean(ctx, r); err != nil {
		return err
	}
	base := strings.TrimSuffix(c.Destination.Prefix, "/")
	if base != "" {
		base += "/"
	}
	base += b.Name + "/" + c.ID + "/"
	m := manifest{Source: b.Name, Destination: c.Destination.Bucket, Version: "2016-11-30", Format: formatCSV,
		Created: strconv.FormatInt(r.Started.UnixMilli(), 10), Schema: strings.Join(c.schema(), ", "), Files: []file{}}
	rows := &rowReader{ctx: ctx, store: w.store, l: object.List{Bucket: b.Name, Versions: c.Versions == allVersions,
		Attributes: c.reads()}, more: true}
	if c.Prefix != nil {
		rows.l.Prefix = *c.Prefix
	}
	for first := true; first || rows.more; first = false {
		key := base + "data/" + rand.Text() + ".csv.gz"
		r.Pending = append(r.Pending, key)
		if err := w.save(ctx, r); err != nil {
			return err
		}
		f, err := w.writeFile(ctx, to.Name, key, c, b.Owner, rows)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
	}
	doc, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	place := base + r.Started.Format("2006-01-02T15-04Z") + "/"
	sum := md5.Sum(doc)
	if err := w.put(ctx, to.Name, place+"manifest.checksum", "text/plain",
		[]byte(hex.EncodeToString(sum[:]))); err != nil {
		return err
	}
	if err := w.put(ctx, to.Name, place+"manifest.json", "application/json", doc); err != nil {
		return err
	}
	ended := w.now().UTC()
	r.Ended, r.Objects, r.Manifest, r.Pending = &ended, rows.count, place+"manifest.json", nil
	return w.save(ctx, r)
}

func (w *Worker) put(ctx context.Context, bucket, key, kind string, text []byte) error {
	_, err := w.store.Put(ctx, object.Put{Bucket: bucket, Key: key, Size: int64(len(text)), Body: bytes.NewReader(text),
		Attributes: map[string]string{object.AttrType: kind}})
	return err
}

// writeFile writes one data file with the next rows. The rows go through a pipe, so that memory does not grow with
// them.
func (w *Worker) writeFile(ctx context.Context, bucket, key string, c *Config, owner string,
	rows *rowReader) (file, error) {
	body, in := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = in.CloseWithError(compress(in, c, owner, rows, w.rows)) // the reader gets the error
	}()
	out := file{Key: key}
	info, err := w.store.Put(ctx, object.Put{Bucket: bucket, Key: key, Size: -1, Body: body, MD5: true,
		Attributes: map[string]string{object.AttrType: "application/gzip"},
		Finish: func(x object.Written) (map[string]string, error) {
			out.MD5 = hex.EncodeToString(x.MD5)
			return nil, nil
		}})
	_ = body.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // ends the writer, if the store has stopped reading
	<-ended
	out.Size = info.Size
	return out, err
}

// compress writes up to limit rows as compressed CSV.
func compress(out io.Writer, c *Config, owner string, rows *rowReader, limit int) error {
	z := gzip.NewWriter(out)
	var buf []byte
	for n := 0; n < limit; n++ {
		info, err := rows.next()
		if err != nil {
			return err
		}
		if info == nil {
			break
		}
		buf = c.row(buf, owner, info)
		if len(buf) >= 64<<10 {
			if _, err := z.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if _, err := z.Write(buf); err != nil {
		return err
	}
	return z.Close()
}

// rowReader returns the object versions of a bucket one after the other, in the order of its listing.
type rowReader struct {
	ctx   context.Context
	store object.Lister
	l     object.List
	page  []object.Info
	count int64
	last  bool // the page is the last one
	more  bool // there may be more rows
}

// next returns the next version, or nil at the end.
func (r *rowReader) next() (*object.Info, error) {
	if len(r.page) == 0 && !r.last {
		page, err := r.store.List(r.ctx, r.l)
		if err != nil {
			return nil, err
		}
		r.page, r.last = page.Objects, !page.Truncated
		r.l.After, r.l.AfterVersion = page.Next, page.NextVersion
	}
	if len(r.page) == 0 {
		r.more = false
		return nil, nil
	}
	info := &r.page[0]
	r.page = r.page[1:]
	r.count++
	r.more = len(r.page) > 0 || !r.last
	return info, nil
}
