// SPDX-License-Identifier: Apache-2.0

package report

// Route is the route that a caller asks for.
type Route string

const (
	// RouteAuto lets the engine choose a route for each chunk, depending on which bytes are in the page cache.
	RouteAuto Route = "auto"
	// RouteBuffered moves every byte through the page cache.
	RouteBuffered Route = "buffered"
	// RouteDirect moves every byte with O_DIRECT. If a file refuses O_DIRECT, the transfer fails.
	RouteDirect Route = "direct"
	// RouteCuFile moves every byte with NVIDIA's libcufile. If libcufile refuses, the transfer fails.
	RouteCuFile Route = "cufile"
)

// CachePolicy chooses whether a load leaves the pages that it reads in the page cache.
type CachePolicy string

const (
	// CacheAuto uses O_DIRECT for uncached bytes at the first load of a file. If the same file is loaded again soon
	// and is still not cached, CacheAuto reads the file through the page cache, so that the next load is faster.
	CacheAuto CachePolicy = "auto"
	// CacheKeep reads through the page cache and leaves the pages there for the next load.
	CacheKeep CachePolicy = "keep"
	// CacheBypass leaves the page cache as it was before the load. A load with CacheBypass drops the pages that it
	// brought into the page cache; File.Left counts the bytes that could not be dropped.
	CacheBypass CachePolicy = "bypass"
)

// CuFileAPI is the interface of libcufile that RouteCuFile uses.
type CuFileAPI string

const (
	// CuFileSync uses the synchronous calls of libcufile, with one thread for each read in flight.
	CuFileSync CuFileAPI = "sync"
	// CuFileAsync queues reads of libcufile on CUDA streams.
	CuFileAsync CuFileAPI = "async"
	// CuFileBatch uses the batch calls of libcufile, which submit and complete reads in groups.
	CuFileBatch CuFileAPI = "batch"
)

// RouteTaken is a route that bytes of a transfer really took.
type RouteTaken string

const (
	// RouteTakenCache means that the bytes were in the page cache when the transfer began.
	RouteTakenCache RouteTaken = "page_cache"
	// RouteTakenBuffered means that the kernel read the bytes from storage into the page cache.
	RouteTakenBuffered RouteTaken = "buffered"
	// RouteTakenDirect means that the bytes came from storage with O_DIRECT, without the page cache.
	RouteTakenDirect RouteTaken = "direct"
	// RouteTakenCuFileP2P means that the kernel's P2PDMA moved the bytes from the disk to the GPU, as libcufile's
	// counters show.
	RouteTakenCuFileP2P RouteTaken = "cufile_p2p"
	// RouteTakenCuFileNVFS means that nvidia-fs moved the bytes from the disk to the GPU, as libcufile's counters
	// show.
	RouteTakenCuFileNVFS RouteTaken = "cufile_nvfs"
	// RouteTakenCuFileCompat means that libcufile moved the bytes through host memory (compatibility mode).
	RouteTakenCuFileCompat RouteTaken = "cufile_compat"
	// RouteTakenCuFileUnknown means that libcufile moved the bytes, but its counters show several routes or are
	// missing.
	RouteTakenCuFileUnknown RouteTaken = "cufile_unknown"
	// RouteTakenDirectUnproven means that the bytes were moved with O_DIRECT on storage that may have used a cache.
	// File.Unproven gives the reason why the route is not proven.
	RouteTakenDirectUnproven RouteTaken = "direct_unproven"
	// RouteTakenBufferedUnproven means that the bytes came through the page cache from storage that may have its own
	// cache. File.Unproven gives the reason why the route is not proven.
	RouteTakenBufferedUnproven RouteTaken = "buffered_unproven"
	// RouteTakenShared means that a load in another process read the bytes from storage with O_DIRECT, into memory that
	// both loads share.
	RouteTakenShared RouteTaken = "shared_memory"
	// RouteTakenNetwork means that the bytes came or went over a network connection.
	RouteTakenNetwork RouteTaken = "network"
)

// FileRoutes returns the routes for reads of local files without cuFile, in the order in which reports list them.
func FileRoutes() []RouteTaken {
	return []RouteTaken{RouteTakenCache, RouteTakenBuffered, RouteTakenBufferedUnproven,
		RouteTakenDirect, RouteTakenDirectUnproven, RouteTakenShared}
}

// Unproven returns the unproven form of a route, for storage that may have used a cache. RouteTakenDirect and
// RouteTakenBuffered have an unproven form; any other route is returned as it is.
func (r RouteTaken) Unproven() RouteTaken {
	switch r {
	case RouteTakenDirect:
		return RouteTakenDirectUnproven
	case RouteTakenBuffered:
		return RouteTakenBufferedUnproven
	}
	return r
}
