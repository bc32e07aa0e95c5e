// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	// defaultType is the content type of an object without one, as in versitygw.
	defaultType = "binary/octet-stream"
	// maxMetadata is the largest total size of the names and values of user metadata in bytes, as in S3.
	maxMetadata = 2 << 10
	// maxType is the largest length of a content type in bytes. S3 limits only the size of all headers.
	maxType = 1 << 10
)

// Describe implements object.Authorizer.
func (a *authorizer) Describe(ctx context.Context, bucket string, d object.Description) (map[string]string, error) {
	const op = "describe object"
	if _, err := a.backend.store.Bucket(ctx, bucket); err != nil {
		return nil, errs.Wrap(op, bucket, err)
	}
	kind := strings.Trim(d.ContentType, " \t")
	if len(kind) > maxType || !printable(kind) {
		return nil, errs.New(errs.Invalid, op, bucket,
			fmt.Sprintf("content type %.64q of %d bytes, expected at most %d without control characters", kind, len(kind),
				maxType))
	}
	if kind == "" {
		kind = defaultType
	}
	meta, err := userMetadata(op, bucket, d.Metadata)
	if err != nil {
		return nil, err
	}
	return headers{Type: &kind, Metadata: meta}.attributes(), nil
}

// JudgeWrite implements object.Authorizer.
func (a *authorizer) JudgeWrite() object.Judge {
	return func(c object.Change) (map[string]string, error) {
		if c.Removed != nil && protected(c.Removed.Attributes, false) != nil {
			return nil, denied("replace", c.Bucket.Name+"/"+c.Removed.Key, "the version that it would replace is locked", nil)
		}
		return defaultRetention(c.Bucket)
	}
}

// userMetadata returns metadata as HTTP headers would deliver it: names in lower case, values without surrounding
// spaces.
func userMetadata(op, bucket string, in map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(in))
	size := 0
	for k, v := range in {
		name := strings.ToLower(k)
		v = strings.Trim(v, " \t")
		switch _, twice := out[name]; {
		case !token(name):
			return nil, errs.New(errs.Invalid, op, bucket, fmt.Sprintf("metadata %.64q, expected a name of letters, digits "+
				"and !#$%%&'*+-.^_`|~", k))
		case twice:
			return nil, errs.New(errs.Invalid, op, bucket, fmt.Sprintf("metadata %.64q are given twice, in upper and lower case",
				name))
		case !printable(v):
			return nil, errs.New(errs.Invalid, op, bucket, fmt.Sprintf("metadata %.64q have the value %.64q, expected no "+
				"control characters", k, v))
		}
		if size += len(name) + len(v); size > maxMetadata {
			return nil, errs.New(errs.Invalid, op, bucket, fmt.Sprintf("metadata of more than %d bytes, names and values "+
				"together", maxMetadata))
		}
		out[name] = v
	}
	return out, nil
}

// token reports whether s can be the name of a header.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return s != ""
}

// printable reports whether s can be the value of a header.
func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
