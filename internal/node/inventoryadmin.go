// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"

	"github.com/nebulaio/nebulaio/internal/inventory"
)

// InventoryReport tells about the last inventory of a configuration.
type InventoryReport = inventory.Report

// InventoryRun names the inventories that RunInventory writes.
type InventoryRun struct {
	Bucket string `json:"bucket"`
	ID     string `json:"id,omitempty"` // empty means all inventories of the bucket
}

// Inventories returns the reports of all inventory configurations.
func (a *DataAdmin) Inventories(ctx context.Context) ([]InventoryReport, error) {
	if a.remote != nil {
		var all []InventoryReport
		return all, a.remote.call(ctx, http.MethodGet, "/v1/inventories", nil, &all)
	}
	return a.lists.Reports(ctx)
}

// RunInventory writes inventories now, and returns their reports. RunInventory fails with kind NotFound if there is no
// such inventory configuration.
func (a *DataAdmin) RunInventory(ctx context.Context, ask InventoryRun) ([]InventoryReport, error) {
	if a.remote != nil {
		var all []InventoryReport
		return all, a.remote.call(ctx, http.MethodPost, "/v1/inventories/run", ask, &all)
	}
	return a.lists.RunNow(ctx, ask.Bucket, ask.ID)
}

// addInventories serves inventories over the administration socket.
func (a *DataAdmin) addInventories(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/inventories", func(w http.ResponseWriter, r *http.Request) {
		all, err := a.Inventories(r.Context())
		answer(w, all, err)
	})
	mux.HandleFunc("POST /v1/inventories/run", answering(a.RunInventory))
}
