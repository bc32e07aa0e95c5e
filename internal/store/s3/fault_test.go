// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"errors"
	"io/fs"
	"net/http"
	"syscall"
	"testing"
)

func TestFaultsAreTheSystemsOwn(t *testing.T) {
	all := []error{syscall.ENOSPC, fs.ErrExist, fs.ErrNotExist, fs.ErrPermission}
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{http.StatusInsufficientStorage, "InsufficientStorage", syscall.ENOSPC},
		{http.StatusInsufficientStorage, "Other", syscall.ENOSPC},
		{http.StatusConflict, "BucketAlreadyExists", fs.ErrExist},
		{http.StatusConflict, "BucketAlreadyOwnedByYou", fs.ErrExist},
		{http.StatusNotFound, "NoSuchKey", fs.ErrNotExist},
		{http.StatusNotFound, "NoSuchBucket", fs.ErrNotExist},
		{http.StatusForbidden, "AccessDenied", fs.ErrPermission},
		{http.StatusForbidden, "SignatureDoesNotMatch", fs.ErrPermission},
		{http.StatusServiceUnavailable, "SlowDown", nil},
	} {
		err := failure("read", "s3://b/k", &Fault{Status: c.status, Code: c.code})
		for _, e := range all {
			if errors.Is(err, e) != (e == c.want) {
				t.Errorf("%s: errors.Is(%v, %v) is %v", c.code, err, e, e != c.want)
			}
		}
	}
}
