// An OpenID provider with the keys of a file. Clients get access tokens for an API, signed with the first key.
// Usage: node oidc_provider.mjs PORT KEYS
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [port, keys] = process.argv.slice(2);
const { resolve } = createRequire(join(process.env.TOOLS, 'package.json'));
const { Provider } = await import(pathToFileURL(resolve('oidc-provider')));
const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: JSON.parse(readFileSync(keys, 'utf8')),
  clients: [{
    client_id: 'app',
    client_secret: 'not secret',
    id_token_signed_response_alg: 'ES256',
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
  }],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => 'urn:api',
      getResourceServerInfo: () => ({
        scope: 'read',
        audience: 'api',
        accessTokenTTL: 3600,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'ES256' } },
      }),
    },
  },
});
provider.on('server_error', (_, error) => console.error(error));
provider.listen(Number(port), '127.0.0.1');
