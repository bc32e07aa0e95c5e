// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

func target(prefix string) storetest.Target {
	return storetest.Target{OneAtATime: true, Open: func(t *testing.T) object.Store { return newThrough(t, prefix) },
		Skip: func(name string) string { return skipped[name] }}
}

// Reasons why tests of the suite cannot hold behind another S3 server.
const (
	utf8Keys  = "S3 keys are UTF-8"
	anyETag   = "S3 has no If-Match: * for this request, and no condition on size or time"
	existed   = "S3 does not say whether what was deleted existed"
	latest    = "S3 does not say by a HEAD of a version whether it is the latest"
	minPart   = "S3 servers refuse parts below 5 MiB themselves"
	oneBucket = "copies between buckets are made by the caller"
	origins   = "the server in front refuses copies with an origin for upstream buckets"
	headers   = "attributes are headers of S3, and those of Finish come too late for a header"
)

// skipped are the tests of the suite that ask for more than S3 has.
var skipped = map[string]string{
	"objects/hostile keys":                                        utf8Keys,
	"objects/what is opened keeps its bytes":                      "reads of what is gone fail with ErrChanged",
	"objects/attributes":                                          headers,
	"objects/attributes have bounds":                              headers,
	"bodies/Finish sees what was written":                         headers,
	"conditions/of puts":                                          anyETag,
	"conditions/of copies":                                        anyETag,
	"conditions/of completions":                                   anyETag,
	"conditions/of deletions":                                     anyETag,
	"conditions/of a copy's source":                               anyETag,
	"versions/off replaces":                                       latest,
	"versions/enabled adds":                                       latest,
	"versions/delete marker hides and is removed":                 latest,
	"versions/null version among others":                          latest,
	"copies/of an old version brings it back":                     latest,
	"versions/suspended delete of what is not there":              existed,
	"versions/delete of the current version shows the one before": latest,
	"versions/attributes of one version":                          headers,
	"versions/many of one key, beside its neighbours":             utf8Keys,
	"deletes/in a bucket without versions":                        existed,
	"deletes/many at once":                                        existed,
	"conditions/a failed condition changes nothing":               "S3 lists no CRC64",
	"copies/onto itself":                                          latest,
	"copies/of a null version in a suspended bucket onto its key": latest,
	"uploads/a part that fails keeps the one before":              minPart,
	"copies/of every size":                                        oneBucket,
	"uploads/missing":                                             oneBucket,
	"uploads/listed page by page":                                 utf8Keys,
	"uploads/begun, described, ended":                             headers,
	"uploads/parts have attributes of their own":                  headers,
	"uploads/parts of an object's ranges":                         "a part that the upstream copies has no known CRC64",
	"copies/of a multipart object":                                minPart,
	"completions/refused":                                         minPart,
	"completions/Finish and attributes":                           minPart,
	"completions/two uploads of one key":                          minPart,
	"completions/parts of every kind":                             minPart,
	"completions/parts of every kind, restarted":                  minPart,
	"completions/parts of every kind without MD5":                 minPart,
	"completions/replaced, deleted and aborted leave nothing":     minPart,
	"origins/a copy keeps time, ETag and order":                   origins,
	"origins/a repeated copy adds nothing":                        origins,
	"origins/a copy is the null version if its origin was":        origins,
	"origins/a bucket without versions keeps one copy":            origins,
}

func TestConformance(t *testing.T) {
	storetest.RunSequential(t, target("below/this/"))
}
