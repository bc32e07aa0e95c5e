// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// completion is the time that targets take to complete a multipart upload, by its size. The number of parts is always
// the same, so that only the bytes differ.
type completion struct {
	Target string   `json:"target"`
	Sizes  []int64  `json:"sizes"`
	Millis []spread `json:"milliseconds"`
	Ratio  spread   `json:"ratio"` // time of the largest over that of the smallest upload, round by round
}

const completedParts = 8

// completeSizes are the sizes of the uploads. The time of the last is compared with that of the first.
var completeSizes = []int64{64 * mib, 1024 * mib}

func measureCompletion(t *target, data []byte, rounds int) (completion, error) {
	c := completion{Target: t.name, Sizes: completeSizes}
	times := make([][]float64, len(c.Sizes))
	for range rounds {
		for i, size := range c.Sizes {
			d, err := completeOnce(t, data, size)
			if err != nil {
				return c, fmt.Errorf("%s: %w", t.name, err)
			}
			times[i] = append(times[i], milliseconds(d))
		}
	}
	for _, ms := range times {
		c.Millis = append(c.Millis, spreadOf(ms))
	}
	c.Ratio = spreadOf(ratios(times[len(times)-1], times[0]))
	return c, nil
}

// completeOnce uploads an object in parts and returns the duration of the completion.
func completeOnce(t *target, data []byte, size int64) (time.Duration, error) {
	const key = "multipart"
	s := t.stream()
	defer s.close()
	var reply strings.Builder
	err := s.do(t.sign(http.MethodPost, key, url.Values{"uploads": {""}}, nil, http.StatusOK, -1),
		func(p []byte) { reply.Write(p) })
	if err != nil {
		return 0, err
	}
	var begun struct{ UploadId string }
	if err := xml.Unmarshal([]byte(reply.String()), &begun); err != nil {
		return 0, fmt.Errorf("no upload in %q: %w", reply.String(), err)
	} else if begun.UploadId == "" {
		return 0, fmt.Errorf("no upload in %q", reply.String())
	}
	part := size / completedParts
	body := "<CompleteMultipartUpload>"
	for n := 1; n <= completedParts; n++ {
		q := url.Values{"uploadId": {begun.UploadId}, "partNumber": {strconv.Itoa(n)}}
		if err := s.do(t.sign(http.MethodPut, key, q, repeated(data, part), http.StatusOK, -1), nil); err != nil {
			return 0, err
		}
		body += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", n, s.header.Get("ETag"))
	}
	body += "</CompleteMultipartUpload>"
	complete := t.sign(http.MethodPost, key, url.Values{"uploadId": {begun.UploadId}}, []byte(body), http.StatusOK, -1)
	reply.Reset()
	start := time.Now()
	if err := s.do(complete, func(p []byte) { reply.Write(p) }); err != nil {
		return 0, err
	}
	took := time.Since(start)
	if !strings.Contains(reply.String(), "CompleteMultipartUploadResult") { // an error may come with status 200
		return 0, fmt.Errorf("completion answered %.300q", reply.String())
	}
	if err := s.do(t.sign(http.MethodGet, key, nil, nil, http.StatusOK, size), nil); err != nil {
		return 0, err
	}
	return took, s.do(t.sign(http.MethodDelete, key, nil, nil, http.StatusNoContent, -1), nil)
}

// repeated returns n bytes of data, which repeats if n is larger.
func repeated(data []byte, n int64) []byte {
	if n <= int64(len(data)) {
		return data[:n]
	}
	out := make([]byte, 0, n)
	for int64(len(out)) < n {
		out = append(out, data[:min(int64(len(data)), n-int64(len(out)))]...)
	}
	return out
}
