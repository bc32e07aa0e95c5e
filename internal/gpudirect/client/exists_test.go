// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

func TestDoorErrorsAreTheSystemsOwn(t *testing.T) {
	all := []error{syscall.ENOSPC, fs.ErrExist, fs.ErrNotExist, fs.ErrPermission}
	for _, c := range []struct {
		code        string
		kind        errs.Kind
		ifNoneMatch string
		want        error
	}{
		{wire.CodeNoSpace, errs.IO, "", syscall.ENOSPC},
		{wire.CodePreconditionFailed, errs.Invalid, "*", fs.ErrExist},
		{wire.CodePreconditionFailed, errs.Invalid, "some-etag", nil},
		{wire.CodeNoSuchBucket, errs.NotFound, "*", fs.ErrNotExist},
		{wire.CodeAccessDenied, errs.Permission, "*", fs.ErrPermission},
		{wire.CodeBusy, errs.IO, "*", nil},
	} {
		err := orExists(c.ifNoneMatch, errs.Wrap("write", "s3://b/k",
			refusal("write", "s3://b/k", &wire.Error{Kind: uint8(c.kind), Code: c.code, Message: "no"})))
		for _, e := range all {
			if errors.Is(err, e) != (e == c.want) {
				t.Errorf("%s: errors.Is(%v, %v) is %v", c.code, err, e, e != c.want)
			}
		}
		if errs.KindOf(err) != c.kind || codeOf(err) != c.code {
			t.Errorf("%s: kind %v, code %q", c.code, errs.KindOf(err), codeOf(err))
		}
	}
	if orExists("*", nil) != nil {
		t.Error("no error became one")
	}
}
