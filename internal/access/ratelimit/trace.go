package ratelimit

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"guildhall/internal/base/tracing"
)

// spans makes each command a span within that of its context. It tells which command
// it was and how it failed: keys, scripts and texts of errors may hold anything.
type spans struct{}

func (spans) DialHook(next redis.DialHook) redis.DialHook { return next }

func (spans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (spans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !tracing.Within(ctx) {
			return next(ctx, cmd)
		}
		name := strings.ToUpper(cmd.Name())
		span := tracing.Statement(ctx, name)
		defer span.End()
		span.Set("db.system.name", "redis")
		span.Set("db.operation.name", name)
		err := next(ctx, cmd)
		if err != nil {
			span.Fail(codeOf(err))
		}
		return err
	}
}

// codeOf is Redis' word for what went wrong; "connection" when it has said nothing.
func codeOf(err error) string {
	if e, ok := errors.AsType[redis.Error](err); ok {
		word, _, _ := strings.Cut(e.Error(), " ")
		return word
	}
	return "connection"
}
