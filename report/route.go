// SPDX-License-Identifier: Apache-2.0

package report

// Route is the route that a caller asks for.
type Route string

const (
	// RouteAuto chooses a route for each chunk by what is in the page cache.
	RouteAuto Route = "auto"
	// RouteBuffered reads every byte through the page cache.
	RouteBuffered Route = "buffered"
	// RouteDirect reads every byte with O_DIRECT. If a file refuses O_DIRECT, the transfer fails.
	RouteDirect Route = "direct"
	// RouteCuFile reads every byte with NVIDIA's libcufile. If libcufile refuses, the transfer fails.
	RouteCuFile Route = "cufile"
)

// CachePolicy says what a load may leave in the page cache.
type CachePolicy string

const (
	// CacheAuto reads absent bytes with O_DIRECT the first time. If the same file is loaded again soon and is absent
	// again, CacheAuto reads it through the page cache, so that the next load finds it there.
	CacheAuto CachePolicy = "auto"
	// CacheKeep reads absent bytes through the page cache, so that the next load finds them there.
	CacheKeep CachePolicy = "keep"
	// CacheBypass leaves the page cache as it was. The load drops the pages that it brought in; File.Left counts the
	// bytes that could not be dropped.
	CacheBypass CachePolicy = "bypass"
)

// CuFileAPI is the interface of libcufile that RouteCuFile uses.
type CuFileAPI string

const (
	// CuFileSync uses one thread for each read in flight.
	CuFileSync CuFileAPI = "sync"
	// CuFileAsync queues reads in CUDA streams.
	CuFileAsync CuFileAPI = "async"
	// CuFileBatch submits and collects reads in groups.
	CuFileBatch CuFileAPI = "batch"
)

// RouteTaken is a route that bytes really took.
type RouteTaken string

const (
	// RouteTakenCache says that the bytes were in the page cache when the transfer began.
	RouteTakenCache RouteTaken = "page_cache"
	// RouteTakenBuffered says that the kernel fetched the bytes from storage into the page cache.
	RouteTakenBuffered RouteTaken = "buffered"
	// RouteTakenDirect says that the bytes came from storage with O_DIRECT, without the page cache.
	RouteTakenDirect RouteTaken = "direct"
	// RouteTakenCuFileP2P says that the kernel's P2PDMA moved the bytes from the disk to the GPU, by libcufile's
	// own counters.
	RouteTakenCuFileP2P RouteTaken = "cufile_p2p"
	// RouteTakenCuFileNVFS says that nvidia-fs moved the bytes from the disk to the GPU, by libcufile's own counters.
	RouteTakenCuFileNVFS RouteTaken = "cufile_nvfs"
	// RouteTakenCuFileCompat says that libcufile moved the bytes through host memory.
	RouteTakenCuFileCompat RouteTaken = "cufile_compat"
	// RouteTakenCuFileUnknown says that libcufile moved the bytes, and its counters show several routes or are missing.
	RouteTakenCuFileUnknown RouteTaken = "cufile_unknown"
	// RouteTakenDirectUnproven says that the bytes were moved with O_DIRECT on storage that may have used a cache.
	// File.Unproven gives the reason.
	RouteTakenDirectUnproven RouteTaken = "direct_unproven"
	// RouteTakenBufferedUnproven says that the bytes came through the page cache from storage that may have used a
	// cache of its own. File.Unproven gives the reason.
	RouteTakenBufferedUnproven RouteTaken = "buffered_unproven"
	// RouteTakenNetwork says that the bytes crossed a network connection.
	RouteTakenNetwork RouteTaken = "network"
)

// FileRoutes returns the routes by which bytes of a local file are read without cuFile, in the order of reports.
func FileRoutes() []RouteTaken {
	return []RouteTaken{RouteTakenCache, RouteTakenBuffered, RouteTakenBufferedUnproven,
		RouteTakenDirect, RouteTakenDirectUnproven}
}

// Unproven returns the name of the route for storage that hides where bytes came from.
func (r RouteTaken) Unproven() RouteTaken {
	switch r {
	case RouteTakenDirect:
		return RouteTakenDirectUnproven
	case RouteTakenBuffered:
		return RouteTakenBufferedUnproven
	}
	return r
}
