// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
)

// recordKinds are the kinds of record that Dump looks at and that tests write.
var recordKinds = []string{"kind", "other", "k\x00", "\xff"}

// Dump describes everything visible in a store, one line for each item, and reads all content. If ids is set, the
// lines include version identifiers and times, which differ between stores.
func Dump(ctx context.Context, s object.Store, ids bool) ([]string, error) {
	bs, err := s.ListBuckets(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, b := range bs {
		line := fmt.Sprintf("bucket %q owner %q versioning %q etag %q", b.Name, b.Owner, b.Versioning, b.ETag)
		for _, k := range slices.Sorted(maps.Keys(b.Settings)) {
			line += fmt.Sprintf(" %q=%q", k, b.Settings[k])
		}
		if ids {
			line += " created " + b.Created.UTC().Format(time.RFC3339Nano)
		}
		out = append(out, line)
		if out, err = dumpObjects(ctx, s, b.Name, ids, out); err != nil {
			return nil, err
		}
		if out, err = dumpUploads(ctx, s, b.Name, ids, out); err != nil {
			return nil, err
		}
	}
	for _, kind := range recordKinds {
		names, err := s.RecordNames(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			v, err := s.Record(ctx, kind, n)
			if err != nil {
				return nil, err
			}
			out = append(out, fmt.Sprintf("record %q %q %s", kind, n, brief(v)))
		}
	}
	return out, nil
}

// AllVersions returns all versions in a bucket, read page by page.
func AllVersions(ctx context.Context, s object.Lister, bucket string) ([]object.Info, error) {
	var all []object.Info
	l := object.List{Bucket: bucket, Versions: true, Attributes: true, Limit: 100}
	for {
		p, err := s.List(ctx, l)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Objects...)
		if !p.Truncated {
			return all, nil
		}
		if p.Next < l.After || p.Next == l.After && p.NextVersion == l.AfterVersion {
			return nil, fmt.Errorf("a page after %q %q goes on at %q %q", l.After, l.AfterVersion, p.Next, p.NextVersion)
		}
		l.After, l.AfterVersion = p.Next, p.NextVersion
	}
}

func dumpObjects(ctx context.Context, s object.Store, bucket string, ids bool, out []string) ([]string, error) {
	all, err := AllVersions(ctx, s, bucket)
	if err != nil {
		return nil, err
	}
	live := map[string]string{}
	for _, i := range all {
		line := show(i, ids)
		out = append(out, line)
		if i.Latest && !i.Marker {
			live[i.Key] = line
		}
		if i.Marker {
			continue
		}
		ref := object.Ref{Bucket: bucket, Key: i.Key, Version: i.Version}
		opened, data, err := Read(ctx, s, ref)
		if err != nil {
			return nil, fmt.Errorf("%q version %q: %w", i.Key, i.Version, err)
		}
		if got := checksum.Of(data); got != i.CRC64 {
			return nil, fmt.Errorf("%q version %q has CRC64 %016x, listed as %016x", i.Key, i.Version, got, i.CRC64)
		}
		if o := show(opened, ids); o != line {
			return nil, fmt.Errorf("opened as %s, listed as %s", o, line)
		}
	}
	// The listing of current objects has to tell the same.
	l := object.List{Bucket: bucket, Attributes: true}
	for {
		p, err := s.List(ctx, l)
		if err != nil {
			return nil, err
		}
		for _, i := range p.Objects {
			if line := show(i, ids); live[i.Key] != line {
				return nil, fmt.Errorf("listed as current %s, among versions %s", line, live[i.Key])
			}
			delete(live, i.Key)
		}
		if !p.Truncated {
			break
		}
		l.After = p.Next
	}
	for k, line := range live {
		return nil, fmt.Errorf("%q is not listed, among versions it is %s", k, line)
	}
	return out, nil
}

func dumpUploads(ctx context.Context, s object.Store, bucket string, ids bool, out []string) ([]string, error) {
	ups, err := allUploads(ctx, s, object.UploadList{Bucket: bucket})
	if err != nil {
		return nil, err
	}
	for _, u := range ups {
		line := fmt.Sprintf("  upload %q %s", u.Key, pairs(u.Attributes))
		if ids {
			line += fmt.Sprintf(" id %q started %s", u.ID, u.Started.UTC().Format(time.RFC3339Nano))
		}
		ps, more, err := s.ListParts(ctx, bucket, u.Key, u.ID, 0, 1000)
		if err != nil {
			return nil, err
		}
		for _, p := range ps {
			line += " " + showPart(p, ids)
		}
		out = append(out, fmt.Sprintf("%s more %v", line, more))
	}
	if !ids {
		// The order of the uploads of one key is that of their identifiers.
		slices.Sort(out[len(out)-len(ups):])
	}
	return out, nil
}

// allUploads lists uploads, page by page.
func allUploads(ctx context.Context, s object.Uploads, l object.UploadList) ([]object.Upload, error) {
	var all []object.Upload
	for {
		p, err := s.ListUploads(ctx, l)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Uploads...)
		if !p.Truncated {
			return all, nil
		}
		l.AfterKey, l.AfterID = p.NextKey, p.NextID
	}
}

// show writes down a version. Without ids a version is null or not.
func show(i object.Info, ids bool) string {
	v := i.Version
	if !ids && i.Versioned() {
		v = "*"
	}
	line := fmt.Sprintf("  %q version %s latest %v", i.Key, v, i.Latest)
	if i.Marker {
		line += " marker"
	} else {
		line += fmt.Sprintf(" size %d etag %s crc %016x %s", i.Size, i.ETag, i.CRC64, pairs(i.Attributes))
	}
	if ids {
		line += " " + i.Modified.UTC().Format(time.RFC3339Nano)
	}
	for _, p := range i.Parts {
		line += " " + showPart(p, ids)
	}
	return line
}

func showPart(p object.PartInfo, ids bool) string {
	line := fmt.Sprintf("[%d size %d etag %s crc %016x %s", p.Number, p.Size, p.ETag, p.CRC64, pairs(p.Attributes))
	if ids {
		line += " " + p.Modified.UTC().Format(time.RFC3339Nano)
	}
	return line + "]"
}

// pairs writes down attributes; a large value by its length.
func pairs(as map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(as)) {
		out = append(out, fmt.Sprintf("%q=%s", k, brief([]byte(as[k]))))
	}
	return "{" + strings.Join(out, " ") + "}"
}
