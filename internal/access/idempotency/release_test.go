package idempotency_test

import (
	"context"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// The rows have the format of the first release. A later release must still replay responses that
// were stored on the day before its update, however it changes the format. RELIABILITY.md, Writes.
func TestResponsesOfTheFirstReleaseAreReplayed(t *testing.T) {
	t.Parallel()
	ctx, d := context.Background(), dbtest.New(t).DB
	box := sealtest.Box(t, 7)
	const token = "01a1ffc5-ffdb-7c14-b1ed-b980caf8a924"
	for _, c := range []struct {
		key, path, body     string
		fingerprint, sealed string
		want                idempotency.Response
	}{
		{
			key: "one", path: "/api/v1/cases",
			body:        `{"user_id":"9","moderator_id":"8","type":"note","reason":"é🎉 <&>"}`,
			fingerprint: "c6044df8d9b3bcbb7cc1b50d6192a697c5acd07a007f40faba6f944d5aca15f6",
			sealed: "01c7adc47f85375dbe7dea9193113ea44e46880cfd343c0c2a2cf1436108341772fea1e87edb3503aa9f8c345e124dad9a33590e03263219a69a3e39" +
				"5ad9826a1b714dd49a5e1beddf2f11c42c093d4ae6f51149f937daa2994945bc5a2b4b804b91997568d93bffdf6867bbc67075809704a07782f1eac2" +
				"a5cab19eb69d132ede01a6304121ca32a58f4d504c17d86253883904cc639e489fc0d251d721d0a08df5355cb3703e9837940b3bcbe51ba9cea63111" +
				"386a756919a04d002faa7770c4c62c08b0dd694a41309684e8f24490f6c1279d61d563196a3e17b38c3953a49c35d58a24ff91eeb580476311083398" +
				"83eb374df38186e5a406adeab7727061b1994744462642613dfe2fe03886127bf50d1d9d6ba69fe6720bf002a40d11257d84847a7299b31749c753e4" +
				"79ddea6ff9f16ead14ab",
			want: idempotency.Response{
				Status: 201, Location: "/api/v1/cases/01a1ffc6-01be-74db-9796-c2c16594f2ef", Replayed: true,
				Body: []byte(`{"data":{"created_at":"2026-11-21T20:22:09.084Z","expires_at":null,` +
					`"id":"01a1ffc6-01be-74db-9796-c2c16594f2ef","moderator_id":"8",` +
					`"number":1,"reason":"é🎉 \u003c\u0026\u003e","source":"api","status":"active","type":"note",` +
					`"updated_at":"2026-11-21T20:22:09.084Z","user_id":"9"}}` + "\n"),
			},
		},
		{
			key: "two", path: "/api/v1/economy/adjust",
			body:        `{"user_id":"9","delta":-5}`,
			fingerprint: "5be82dbfa048cdb9acaedd62f545f09fe089768762b910e577ffe9d8472b33b1",
			sealed: "017b2193034a67476b410ce9ff9b71737dcc254a9a4efe0c7463329a84a0c28fa4a5662db74116c98bed112447b304b247037add0fd4803d42f403ea" +
				"398d96053b3d3ee56f7322df4756eb61f07399c9f887ce4d69ea1a0bc54c4518a33dceb123af7a0aa807a2dfb341ebcf83ca79ee417287c132ce24ff" +
				"a73f35e4eb09da1cd60b85",
			want: idempotency.Response{
				Status: 422, Location: "", Replayed: true,
				Body: []byte(`{"error":{"code":"balance_would_be_negative","message":"The balance does not cover a change by -5."}}` + "\n"),
			},
		},
	} {
		fingerprint, err := hex.DecodeString(c.fingerprint)
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := hex.DecodeString(c.sealed)
		if err != nil {
			t.Fatal(err)
		}
		var got *idempotency.Response
		err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.ExecContext(ctx, `
				INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, location, body)
				VALUES ('g', $1, $2, $3, 'done', $4, nullif($5, ''), $6)`,
				token, c.key, fingerprint, c.want.Status, c.want.Location, sealed); err != nil {
				return err
			}
			got, err = idempotency.Keys{Sealer: box}.Claim(ctx, tx, idempotency.Request{
				GuildID: "g", TokenID: token, Key: c.key, Fingerprint: idempotency.Fingerprint("POST", c.path, []byte(c.body)),
			})
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", c.key, err)
		}
		if diff := cmp.Diff(&c.want, got); diff != "" {
			t.Errorf("%s: %s", c.key, diff)
		}
	}
}
