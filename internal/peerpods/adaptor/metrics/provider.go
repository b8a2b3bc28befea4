// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/intercept"
)

// Provider returns p with its calls measured. It has the capabilities that p has;
// ask for them with [provider.As].
func (m *Metrics) Provider(p provider.Provider) provider.Provider {
	return intercept.Provider(p, func(_ context.Context, call intercept.Call, next func() error) error {
		began := time.Now()
		err := next()
		m.calls.WithLabelValues(m.provider, call.Method, classOf(err)).Observe(time.Since(began).Seconds())
		return err
	})
}
