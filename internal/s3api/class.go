// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Storage classes belong to the upstream of a bucket. This server keeps objects in one class, STANDARD.

// classHeader is the header or argument of a request that names a storage class.
const classHeader = "x-amz-storage-class"

// longestClass is the largest length in bytes of the name of a storage class.
const longestClass = 64

// refuseClass returns the S3 error for a storage class that cannot be had.
func refuseClass(why string) s3err.S3Error {
	return s3err.APIError{
		Code: "InvalidStorageClass", HTTPStatusCode: http.StatusBadRequest,
		Description: "The storage class you specified is not valid. " + why,
	}
}

// checkClass returns an error for a text that is no name of a storage class. If the request writes no object, only
// STANDARD is accepted.
func checkClass(class string, writes bool) s3err.S3Error {
	if class == "" || class == string(types.StorageClassStandard) {
		return nil
	}
	if !writes || len(class) > longestClass || strings.Trim(class, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return refuseClass("It is no storage class of a new object.")
	}
	return nil
}

// writesObject reports whether a request makes an object or begins an upload.
func writesObject(rctx *fasthttp.RequestCtx, resource string) bool {
	return rctx.IsPut() && resource == "" && !rctx.QueryArgs().Has("uploadId") || rctx.IsPost() && resource == "uploads"
}

// addClass adds the storage class of a request to the attributes of a new object. It fails if the bucket has no such
// class: only upstreams offer other classes than STANDARD.
func addClass(ctx context.Context, attrs map[string]string, bk *object.Bucket) error {
	class := askedClass(ctx)
	switch {
	case class == "", class == string(types.StorageClassStandard) && !bk.OnUpstream():
		return nil
	case !bk.OnUpstream():
		return refuseClass("This bucket offers STANDARD alone.")
	}
	attrs[object.AttrClass] = class
	return nil
}

// askedClass returns the storage class that a request or a form names.
func askedClass(ctx context.Context) string {
	if fields := form(ctx); fields != nil {
		return fields[classHeader]
	}
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return ""
	}
	if v := rctx.Request.Header.Peek(classHeader); len(v) > 0 {
		return string(v)
	}
	for k, v := range rctx.QueryArgs().All() {
		if strings.EqualFold(string(k), classHeader) {
			return string(v)
		}
	}
	return ""
}

// classOf returns the storage class of an object or an upload.
func classOf(attrs map[string]string) string {
	if class := attrs[object.AttrClass]; class != "" {
		return class
	}
	return string(types.StorageClassStandard)
}
