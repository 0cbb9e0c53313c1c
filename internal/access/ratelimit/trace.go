package ratelimit

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"guildhall/internal/base/tracing"
)

// spans makes a span for each command as a child of the caller's span. The span contains the
// command's name and how it failed, and no keys, scripts or error texts, which may contain
// anything.
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

// codeOf returns Redis' error code, or "connection" for an error that did not come from Redis.
func codeOf(err error) string {
	if e, ok := errors.AsType[redis.Error](err); ok {
		word, _, _ := strings.Cut(e.Error(), " ")
		return word
	}
	return "connection"
}
