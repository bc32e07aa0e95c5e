// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// stat describes a version that exists and is no delete marker.
func (b *backend) stat(ctx context.Context, op string, ref object.Ref) (object.Info, error) {
	info, err := b.store.Stat(details(ctx, nil), ref)
	if info.Marker {
		return info, s3err.GetAPIError(s3err.ErrMethodNotAllowed)
	}
	return info, b.s3Error(op, ref, err)
}

// setAttributes changes the attributes of a version that exists and is no delete marker.
func (b *backend) setAttributes(ctx context.Context, op string, ref object.Ref,
	change func(map[string]string) error) error {
	err := b.store.SetAttributes(changing(ctx, op), ref, change)
	if errors.Is(err, object.ErrNoSuchKey) {
		if info, _ := b.store.Stat(patient(ctx), ref); info.Marker {
			return s3err.GetAPIError(s3err.ErrMethodNotAllowed)
		}
	}
	return b.s3Error(op, ref, err)
}

func ownRef(bucket, key, version string) object.Ref {
	return object.Ref{Bucket: strings.Clone(bucket), Key: reveal(strings.Clone(key)), Version: strings.Clone(version)}
}

func (b *backend) GetObjectTagging(ctx context.Context, bucket, key, version string) (map[string]string, error) {
	ref := ownRef(bucket, key, version)
	if err := b.authorizePublic(ctx, ref, auth.GetObjectVersionTaggingAction, auth.PermissionRead); err != nil {
		return nil, err
	}
	info, err := b.stat(ctx, "GetObjectTagging", ref)
	if err != nil {
		return nil, err
	}
	sortTags(ctx)
	return decodeTags(info.Attributes[attrTags])
}

func (b *backend) PutObjectTagging(ctx context.Context, bucket, key, version string, tags map[string]string) error {
	ref, action := ownRef(bucket, key, version), auth.PutObjectVersionTaggingAction
	if tags == nil {
		action = auth.DeleteObjectVersionTaggingAction
	} else if err := checkDocument(ctx, "Tagging"); err != nil {
		return err
	}
	if err := b.authorizePublic(ctx, ref, action, auth.PermissionWrite); err != nil {
		return err
	}
	doc, err := encodeTags(tags)
	if err != nil {
		return err
	}
	op := "PutObjectTagging"
	if tags == nil {
		op = "DeleteObjectTagging"
	}
	return b.setAttributes(ctx, op, ref, func(a map[string]string) error {
		if tags == nil {
			delete(a, attrTags)
		} else {
			a[attrTags] = doc
		}
		return nil
	})
}

func (b *backend) DeleteObjectTagging(ctx context.Context, bucket, key, version string) error {
	return b.PutObjectTagging(ctx, bucket, key, version, nil)
}

// lockable returns an error if the object does not exist or its bucket has no object lock.
func (b *backend) lockable(ctx context.Context, op string, ref object.Ref) (object.Info, error) {
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	info, err := b.store.Stat(details(ctx, nil), ref)
	switch {
	case info.Marker:
		err = s3err.GetAPIError(s3err.ErrMethodNotAllowed)
	case errors.Is(err, object.ErrNoSuchVersion):
		// A version of a key that never existed protects nothing.
		if cur, curErr := b.store.Stat(patient(ctx), object.Ref{Bucket: ref.Bucket, Key: ref.Key}); errors.Is(curErr,
			object.ErrNoSuchKey) && !cur.Marker {
			err = curErr
		}
	}
	err = b.s3Error(op, ref, err)
	if errors.Is(err, s3err.GetAPIError(s3err.ErrNoSuchKey)) {
		return info, err
	}
	locks, lockErr := locks(ctx, b, bk)
	switch {
	case lockErr != nil:
		return info, lockErr
	case !locks:
		return info, s3err.GetAPIError(s3err.ErrMissingObjectLockConfiguration)
	}
	return info, err
}

func (b *backend) PutObjectLegalHold(ctx context.Context, bucket, key, version string, on bool) error {
	if err := checkDocument(ctx, "LegalHold"); err != nil {
		return err
	}
	ref := ownRef(bucket, key, version)
	if _, err := b.lockable(ctx, "PutObjectLegalHold", ref); err != nil {
		return err
	}
	return b.setAttributes(ctx, "PutObjectLegalHold", ref, func(a map[string]string) error {
		a[attrHold] = "0"
		if on {
			a[attrHold] = "1"
		}
		return nil
	})
}

func (b *backend) GetObjectLegalHold(ctx context.Context, bucket, key, version string) (*bool, error) {
	hold, err := b.lockAttribute(ctx, "GetObjectLegalHold", ownRef(bucket, key, version), attrHold)
	if err != nil {
		return nil, err
	}
	return ptr(hold == "1"), nil
}

func (b *backend) PutObjectRetention(ctx context.Context, bucket, key, version string, retention []byte) error {
	if err := checkDocument(ctx, "Retention"); err != nil {
		return err
	}
	ref, doc := ownRef(bucket, key, version), string(bytes.Clone(retention))
	if _, err := b.lockable(ctx, "PutObjectRetention", ref); err != nil {
		return err
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return err
	}
	bypass := b.mayBypass(ctx, bk, ref)
	return b.setAttributes(ctx, "PutObjectRetention", ref, func(a map[string]string) error {
		if err := replaceable(a[attrRetention], doc, bypass); err != nil {
			return err
		}
		a[attrRetention] = doc
		return nil
	})
}

func (b *backend) GetObjectRetention(ctx context.Context, bucket, key, version string) ([]byte, error) {
	doc, err := b.lockAttribute(ctx, "GetObjectRetention", ownRef(bucket, key, version), attrRetention)
	if err != nil {
		return nil, err
	}
	return []byte(doc), nil
}

// lockAttribute returns an attribute that locks a version: its retention or its legal hold.
func (b *backend) lockAttribute(ctx context.Context, op string, ref object.Ref, name string) (string, error) {
	info, err := b.lockable(ctx, op, ref)
	if err != nil {
		return "", err
	}
	value, ok := info.Attributes[name]
	if !ok {
		return "", s3err.GetAPIError(s3err.ErrNoSuchObjectLockConfiguration)
	}
	return value, nil
}
